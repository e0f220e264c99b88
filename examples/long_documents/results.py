"""Collect the runs of run.sh: a table, OUT/results.csv and one figure, OUT/lengths.png.

    fairseq-posenc script results.py OUT

OUT has PART/SYSTEM-LENGTH/train.log, logs of fairseq-train for PART in language and masked, and
tuned/SYSTEM-LENGTH with fine-tuning. Time a token is the median over the intervals of the log but
the first. Memory is the peak on the GPU that the log reports, without a GPU that of the process.
Perplexity is that of the validation text after the last update, of masked tokens for a masked
language model; accuracy the median over the seeds at the best learning rate, on the validation set.
"""

import csv
import math
import re
import statistics
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from scores import collect

from fairseq_posenc.analysis.figures import curve_style, import_pyplot, save_figure
from fairseq_posenc.analysis.training import parse_line
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines, write_text
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.cli.command import quieten
from fairseq_posenc.flags.usage import documented_parser

PARTS = {"language": "language model", "masked": "masked language model"}
#: the model that all others continue
START = "short"
RUN = re.compile(r"(.+)-(\d+)")
TOTAL = re.compile(r"total memory = ([\d.]+) GB")
COLUMNS = {
    "microseconds": "time (µs a token)",
    "mebibytes": "peak memory (MiB)",
    "perplexity": "perplexity",
    "accuracy": "accuracy, fine-tuned (%)",
    "short_accuracy": "on short texts (%)",
}


class Result(NamedTuple):
    """Cost and scores of one training run.

    Args:
        part: a key of PARTS.
        system: as named by run.sh.
        length: tokens that the model reads, memory included.
        updates: number of updates.
        microseconds: time per token in training.
        mebibytes: peak memory; None if it was not recorded.
        perplexity: the perplexity of the validation text.
        accuracy: after fine-tuning, in percent; None without it.
        short_accuracy: after fine-tuning on short texts; None without it.
    """

    part: str
    system: str
    length: int
    updates: int
    microseconds: float
    mebibytes: Optional[float]
    perplexity: float
    accuracy: Optional[float]
    short_accuracy: Optional[float] = None


def read_run(folder: Path, part: str, accuracies: Dict[str, float]) -> Optional[Result]:
    """The result of a training, or None if it is not complete.

    Args:
        folder: the folder of the training, SYSTEM-LENGTH.
        part: a key of PARTS.
        accuracies: by the name of the folder.
    """
    named, log = RUN.fullmatch(folder.name), folder / "train.log"
    if named is None or not log.is_file():
        return None
    lines = list(read_lines(str(log)))
    found = [parse_line(line) for line in lines]
    valid = [fields for fields in found if "valid_ppl" in fields]
    speeds = [float(fields["wps"]) for fields in found if float(fields.get("wps", 0)) > 0]
    if not valid or not speeds or not any("done training in" in line for line in lines):
        return None
    total = next((float(m.group(1)) for m in map(TOTAL.search, lines) if m), math.nan)
    used = [total - float(fields["gb_free"]) for fields in found if "gb_free" in fields]
    peak = folder / "peak"
    memory = 1024 * max(used) if used else None
    if memory is None and peak.is_file():
        memory = float(peak.read_text())
    return Result(
        part,
        named.group(1),
        int(named.group(2)),
        int(float(valid[-1]["valid_num_updates"])),
        1e6 / statistics.median(speeds[1:] or speeds),
        memory,
        float(valid[-1]["valid_ppl"]),
        accuracies.get(folder.name),
        accuracies.get(f"{folder.name}-short"),
    )


def read_accuracies(folder: Path) -> Dict[str, float]:
    """The accuracy of every fine-tuned model in percent, by its name."""
    if not folder.is_dir():
        return {}
    table = collect(folder, "tupe", "best")
    return {name: cell.best("tupe")[1] for name, cells in table.items() for cell in cells.values()}


def read_results(out: Path) -> List[Result]:
    """All complete trainings, the start first, then by system in order of length."""
    tuned = read_accuracies(out / "tuned")
    found = []
    for part in PARTS:
        for folder in out.glob(f"{part}/*"):
            result = read_run(folder, part, tuned if part == "masked" else {})
            if result is not None:
                found.append(result)
    if not found:
        raise UsageError(f"{out}: has no complete training; run run.sh")
    return sorted(found, key=lambda r: (r.part, r.system != START, r.system, r.length))


def render(results: Sequence[Result]) -> List[str]:
    """The table in Markdown."""
    on_short = any(result.short_accuracy is not None for result in results)
    columns = [name for name in COLUMNS if on_short or name != "short_accuracy"]
    head = ["model", "system", "length", "updates", *(COLUMNS[name] for name in columns)]
    rows = []
    for result in results:
        numbers = [getattr(result, name) for name in columns]
        row = [PARTS[result.part], f"`{result.system}`", f"{result.length:,}"]
        row += [f"{result.updates:,}"]
        row += ["" if number is None else f"{number:.4g}" for number in numbers]
        rows.append(row)
    return markdown_table(head, rows)


def draw(results: Sequence[Result], output: Path) -> None:
    """Draw time, memory and quality against length, a row of panels for each part.

    Args:
        results: the results of all runs; each system's curve begins at the model that it continues.
        output: the file.
    """
    parts = [part for part in PARTS if any(r.part == part and r.system != START for r in results)]
    if not parts:
        raise UsageError(
            f"{output}: nothing to draw, no model goes on from {START}; run run.sh to its end"
        )
    systems = sorted({r.system for r in results} - {START})
    figure, panels = import_pyplot(str(output)).subplots(
        len(parts), 3, figsize=(10, 3.1 * len(parts)), constrained_layout=True, squeeze=False
    )
    for row, part in zip(panels, parts):
        mine = [r for r in results if r.part == part]
        tuned = any(r.accuracy is not None for r in mine)
        quality = "accuracy" if tuned else "perplexity"
        for panel, name in zip(row, ("microseconds", "mebibytes", quality)):
            for number, system in enumerate(systems):
                points = sorted(
                    (r.length, getattr(r, name))
                    for r in mine
                    if r.system in (system, START) and getattr(r, name) is not None
                )
                if any(r.system == system for r in mine) and points:
                    lengths, values = zip(*points)
                    panel.plot(lengths, values, **curve_style(number), label=system)
            panel.set(xlabel="length (tokens)", title=PARTS[part], ylabel=COLUMNS[name])
            panel.set_xscale("log", base=2)
            ticks = sorted({r.length for r in mine})
            panel.set_xticks(ticks, [f"{n:,}" for n in ticks])
            panel.minorticks_off()
        row[0].legend()
    save_figure(figure, output)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args(argv).out
    results = read_results(out)
    with write_text(str(out / "results.csv")) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(Result._fields)
        writer.writerows(results)
    draw(results, out / "lengths.png")
    print("\n".join(render(results)))


if __name__ == "__main__":
    quieten()
    main()
