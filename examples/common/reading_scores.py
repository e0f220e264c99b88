"""Print a table of the scores of reading tasks.

    fairseq-posenc script reading_scores.py [--epoch last] OUT

OUT is the output folder of finetune.sh, with OUT/MODEL/TASK/lrRATE-batchN-seedSEED/train.log.
The score of a run is that of its best epoch, or of its last. Over the seeds, the table gives the
median for squad, race, copa and qnli, as in the RoBERTa paper, otherwise the mean, and the standard
deviation. The mean of the two scores of cmrc is what the GAU paper reports.
"""

import json
import re
import statistics
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.flags.usage import documented_parser

SPANS = ("squad", "cmrc")
#: The validation sets of multiple choice as the table names them; those of RACE last.
SETS = {"valid": "", "valid1": "test ", "valid2": "test, middle: ", "valid3": "test, high: "}
RUN = re.compile(r"lr(.+)-batch(\d+)-seed(\d+)")
MEDIAN = ("squad", "race", "copa", "qnli")


def entries_of(log: Path) -> Iterator[Dict[str, str]]:
    """What a log of fairseq-train with --log-format json says after every epoch."""
    for line in read_lines(log):
        start = line.find('{"epoch"')
        if start >= 0:
            yield json.loads(line[start:])


def scores_of(log: Path, task: str, epoch: str) -> Dict[str, float]:
    """The scores of a run, by name.

    Args:
        log: a log of fairseq-train with --log-format json.
        task: one of TASKS.
        epoch: best or last.
    """
    names = [f"{subset}_accuracy" for subset in SETS]
    if task in SPANS:
        names = ["valid_exact", "valid_f1"]
    found: List[Dict[str, float]] = []
    for entry in entries_of(log):
        values = {name: float(entry[name]) for name in names if name in entry}
        if names[0] in values:
            found.append(values)
        elif values:
            found[-1].update(values)  # the test set comes after the validation set
    if not found:
        raise UsageError(f"{log}: has no {names[0]}")
    chosen = found[-1]
    if epoch == "best":
        key = "valid_f1" if task in SPANS else names[0]
        chosen = max(found, key=lambda values: values[key])
    if task == "cmrc":
        chosen["mean of both"] = (chosen["valid_exact"] + chosen["valid_f1"]) / 2
    return chosen


# in the order of the papers' tables
TASKS = ("squad", "race", "copa", "qnli", "cail", "cmrc", "chid", "c3")
#: The score that a paper reports for a task, with its name; other tasks have the accuracy.
REPORTED = {"squad": ("valid_f1", "F1"), "cmrc": ("mean of both", "mean of EM and F1")}


def runs_in(out: Path) -> Iterator[Tuple[str, str, str, Path]]:
    """Model, task, learning rate and batch, and log of all runs in the output of finetune.sh."""
    for log in sorted(out.glob("*/*/*/train.log")):
        run = RUN.fullmatch(log.parent.name)
        if run:
            yield log.parts[-4], log.parts[-3], f"{run.group(1)} x {run.group(2)}", log


def reported(out: Path, epoch: str) -> Iterator[Tuple[str, str, str, str, float]]:
    """The scores that papers report, of all runs in a folder.

    Args:
        out: the output folder of finetune.sh.
        epoch: best or last.

    Yields:
        model, task, name of the score, learning rate and batch, and the score on the validation
        set.
    """
    for model, task, rate, log in runs_in(out):
        key, name = REPORTED.get(task, ("valid_accuracy", "accuracy"))
        yield model, task, name, rate, scores_of(log, task, epoch)[key]


def render(out: Path, epoch: str) -> List[str]:
    """The table in Markdown, a row for each model, task, and learning rate."""
    cells: Dict[Tuple[str, str, str], List[Dict[str, float]]] = {}
    for model, task, rate, log in runs_in(out):
        cells.setdefault((task, model, rate), []).append(scores_of(log, task, epoch))
    if not cells:
        raise UsageError(f"{out}: contains no runs of finetune.sh")
    rows = []
    for (task, model, rate), runs in sorted(cells.items()):
        combine = statistics.median if task in MEDIAN else statistics.mean
        shown = []
        for name in runs[0]:
            values = [run[name] for run in runs if name in run]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            subset, _, score = name.rpartition("_")
            title = SETS.get(subset, "") + score
            shown.append(f"{title} {combine(values):.2f}{spread}")
        rows.append([task, model, rate, str(len(runs)), ", ".join(shown)])
    return markdown_table(["task", "model", "rate x batch", "seeds", "scores"], rows)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("--epoch", choices=["best", "last"], default="best")
    parser.add_argument("out", type=Path)
    args = parser.parse_args(argv)
    print("\n".join(render(args.out, args.epoch)))


if __name__ == "__main__":
    main()
