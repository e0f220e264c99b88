"""Loss curves from the logs of fairseq-train."""

import json
import re
from pathlib import Path
from statistics import mean
from typing import Dict, List, Mapping, NamedTuple, Sequence

from fairseq_posenc.analysis.figures import curve_style, import_pyplot, plot_runs, save_figure
from fairseq_posenc.basics.errors import UsageError

METRICS = {  # name: axis title, with the unit
    "loss": "loss (bits per token)",
    "nll_loss": "negative log-likelihood (bits per token)",
    "ppl": "perplexity",
    "bleu": "BLEU",
}
MINIMUM_UPDATES = 2  # the fewest points that make a curve
SIMPLE_INNER = re.compile(r"epoch (\d+):\s+\d+ / \d+ (.*)")
SIMPLE_STATS = re.compile(r"epoch (\d+) \| valid on '([^']*)' subset \| (.*)")


class Curves(NamedTuple):
    """Values keyed by the number of updates; if a log repeats an update, its last value counts."""

    train: Dict[int, float]
    valid: Dict[int, float]


def parse_line(line: str) -> Dict[str, str]:
    """Parse a line of a log into names and values; {} for lines without values.

    The names of validation values begin with the name of the subset, as in ``valid_loss``.
    """
    start = line.find('{"epoch"')
    if start >= 0:
        try:
            return {key: str(value) for key, value in json.loads(line[start:]).items()}
        except ValueError:  # truncated, for example by a full disk
            return {}
    inner = SIMPLE_INNER.search(line)
    if inner:
        return dict(pair.split("=", 1) for pair in inner.group(2).split(", ") if "=" in pair)
    stats = SIMPLE_STATS.search(line)
    if stats:
        pairs = (field.rsplit(" ", 1) for field in stats.group(3).split(" | "))
        return {f"{stats.group(2)}_{pair[0]}": pair[1] for pair in pairs if len(pair) == 2}
    return {}


def read_curves(lines: Sequence[str], metric: str, first: int = 0) -> Curves:
    """Collect one metric from the lines of a log.

    Args:
        first: leave out values before this update.
    """
    curves = Curves({}, {})
    for fields in map(parse_line, lines):
        for curve, prefix in ((curves.train, ""), (curves.valid, "valid_")):
            value, updates = fields.get(prefix + metric), fields.get(prefix + "num_updates")
            if value is not None and updates is not None and float(updates) >= first:
                curve[int(float(updates))] = float(value)
    return curves


def together(runs: Sequence[Mapping[int, float]]) -> Dict[int, List[float]]:
    """The values of all runs, keyed by the updates that all runs have, in order."""
    updates = set(runs[0]).intersection(*runs[1:])
    return {number: [run[number] for run in runs] for number in sorted(updates)}


def draw(curves: Dict[str, List[Curves]], metric: str, output: Path) -> None:
    """Plot the mean over the runs of each name: validation as a line, training as points.

    Args:
        curves: the runs, keyed by name.
    """
    figure, axes = import_pyplot("--output").subplots(figsize=(7, 4.5), constrained_layout=True)
    drawn: List[str] = []
    for number, (label, runs) in enumerate(curves.items()):
        # each name has one entry in the legend, for its validation curve if there is one
        valid, name = together([run.valid for run in runs]), label
        if valid:
            plot_runs(axes, valid, label=label, **curve_style(number))
            drawn.append("validation")
            name = ""
        train = together([run.train for run in runs])
        if train:
            style = {**curve_style(number), "linestyle": "", "markerfacecolor": "none"}
            axes.plot(list(train), list(map(mean, train.values())), label=name, **style)
            drawn.append("training")
    marks = {"training": "training (open marks)", "validation": "validation (filled marks)"}
    parts = " and ".join(text for part, text in marks.items() if part in drawn)
    axes.set(xlabel="updates", ylabel=f"{METRICS[metric]}\n{parts}")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves, which fill the axes
    save_figure(figure, output)


def plot(
    logs: Sequence[Path], labels: Sequence[str], metric: str, first: int, output: Path
) -> None:
    """Draw the curves of several logs, as ``fairseq-posenc plot training`` does."""
    names = list(labels) or [log.resolve().parent.name for log in logs]
    if len(names) != len(logs):
        raise UsageError(
            f"--labels {' '.join(names)}: expected {len(logs)} names, one for each log"
        )
    if not labels and len(set(names)) != len(names):
        raise UsageError(
            f"{' '.join(names)}: several logs are in folders of the same name; use --labels"
        )
    curves: Dict[str, List[Curves]] = {}
    for name, log in zip(names, logs):
        curves.setdefault(name, []).append(_read_log(log, metric, first))
    for name, runs in curves.items():
        shared = together([run.train for run in runs]), together([run.valid for run in runs])
        if max(map(len, shared)) < MINIMUM_UPDATES:
            raise UsageError(
                f"--labels {name}: the logs with this name share too few updates; give them "
                "different names"
            )
    draw(curves, metric, output)


def _read_log(log: Path, metric: str, first: int) -> Curves:
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{log}: {error.strerror}; give a log of fairseq-train") from error
    run = read_curves(text.splitlines(), metric, first)
    if max(len(run.train), len(run.valid)) < MINIMUM_UPDATES:
        raise UsageError(
            f"{log}: has no curve of --metric {metric} from update {first} on; train with "
            "--log-format json, and with a --log-interval below the number of updates"
        )
    return run
