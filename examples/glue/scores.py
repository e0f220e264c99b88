"""Print a table of fine-tuning scores, with the best learning rate for each task.

    python scores.py [--paper roformer] [--epoch last] OUT

OUT is the output folder of finetune.sh, with OUT/MODEL/TASK/lrRATE-seedSEED/train.log, or with
lrRATE-batchN-seedSEED for another batch size than the paper's. The score of a run is that of its
best epoch, or of its last. Over the seeds of a learning rate (and batch size), the table gives the
median, as in the TUPE paper, or with --paper roformer or gau the mean and standard deviation, and
it reports the best learning rate. All scores are in percent.
"""

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tasks import TASKS, Task, reported
from text import fail, read_lines

# MNLI has two validation sets, the other tasks have one
SUBSETS = {"MNLI": (("MNLI-m", "valid"), ("MNLI-mm", "valid1"))}
RUN = re.compile(r"lr([^-]+(?:-\d+)?)(?:-batch(\d+))?-seed(.+)")


class Cell(NamedTuple):
    """The scores of one model on one validation set, by learning rate (and batch) as given."""

    runs: Dict[str, List[float]]

    def best(self, paper: str) -> Tuple[str, float]:
        """The learning rate with the best combined score, and that score."""
        together = {rate: combine(scores, paper) for rate, scores in self.runs.items()}
        rate = max(together, key=lambda rate: together[rate])
        return rate, together[rate]


def combine(scores: Sequence[float], paper: str) -> float:
    """The median over seeds for the TUPE paper, otherwise the mean."""
    return statistics.median(scores) if paper == "tupe" else statistics.mean(scores)


def score_of(log: str, subset: str, name: str, epoch: str) -> Optional[float]:
    """The score of one run, or None if its log has none.

    Args:
        log: log file of fairseq-train with --log-format json.
        subset: name of the validation set, valid or valid1.
        name: name of the score.
        epoch: best or last.
    """
    found = []
    for line in read_lines(log):
        start = line.find('{"epoch"')
        value = json.loads(line[start:]).get(f"{subset}_{name}") if start >= 0 else None
        if value is not None:
            found.append(float(value))
    if not found:
        return None
    return max(found) if epoch == "best" else found[-1]


def collect(
    out: Path, paper: str, epoch: str, tasks: Mapping[str, Task] = TASKS
) -> Dict[str, Dict[str, Cell]]:
    """Scores of these tasks by model and by validation set."""
    table: Dict[str, Dict[str, Cell]] = {}
    for log in sorted(out.glob("*/*/lr*-seed*/train.log")):
        model, task = log.parts[-4:-2]
        match = RUN.fullmatch(log.parent.name)
        if task not in tasks or match is None:
            continue
        name = reported(tasks[task], paper)
        for column, subset in SUBSETS.get(task, ((task, "valid"),)):
            score = score_of(str(log), subset, name, epoch)
            if score is None:
                fail(f"{log}: contains no {subset}_{name}")
            cell = table.setdefault(model, {}).setdefault(f"{column} ({name})", Cell({}))
            setting = " x ".join(filter(None, match.group(1, 2)))
            cell.runs.setdefault(setting, []).append(score)
    if not table:
        fail(f"{out}: contains no runs of finetune.sh (MODEL/TASK/lrRATE-seedSEED/train.log)")
    return table


def _in_order(columns: Sequence[str], tasks: Mapping[str, Task]) -> List[str]:
    names = list(tasks)
    return sorted(columns, key=lambda c: (names.index(re.split("-m| ", c)[0]), c))


def render(
    table: Dict[str, Dict[str, Cell]], paper: str, tasks: Mapping[str, Task] = TASKS
) -> List[str]:
    """The table in Markdown, a row per model and a column per validation set, then its details."""
    columns = _in_order([*{column: 0 for cells in table.values() for column in cells}], tasks)
    lines = ["| model | " + " | ".join(columns) + " | average |"]
    lines.append("|" + " --- |" * (len(columns) + 2))
    for model, cells in table.items():
        best = {column: cells[column].best(paper) for column in columns if column in cells}
        row = [f"{best[c][1]:.2f}" if c in best else "" for c in columns]
        whole = len(best) == len(columns)
        row.append(f"{statistics.mean(s for _, s in best.values()):.2f}" if whole else "")
        lines.append(f"| {model} | " + " | ".join(row) + " |")
    kind = "median" if paper == "tupe" else "mean and standard deviation"
    lines += ["", f"{kind} of the seeds, by learning rate (x batch size):".capitalize(), ""]
    rates = sorted(
        {r for row in table.values() for cell in row.values() for r in cell.runs},
        key=lambda rate: [float(part) for part in rate.split(" x ")],
    )
    lines.append("| model | set (score) | seeds | " + " | ".join(rates) + " |")
    lines.append("|" + " --- |" * (len(rates) + 3))
    for model, cells in table.items():
        for column in _in_order(list(cells), tasks):
            runs = cells[column].runs
            seeds = "/".join(map(str, sorted({len(scores) for scores in runs.values()})))
            row = [_describe(runs.get(rate, []), paper) for rate in rates]
            lines.append(f"| {model} | {column} | {seeds} | " + " | ".join(row) + " |")
    return lines


def _describe(scores: Sequence[float], paper: str) -> str:
    if not scores:
        return ""
    text = f"{combine(scores, paper):.2f}"
    if paper != "tupe" and len(scores) > 1:
        text += f" ± {statistics.stdev(scores):.2f}"
    return text


def main(argv: Optional[Sequence[str]] = None, tasks: Mapping[str, Task] = TASKS) -> None:
    """Run the command line, for these tasks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paper", choices=["tupe", "roformer", "gau"], default="tupe")
    parser.add_argument("--epoch", choices=["best", "last"], default="best")
    parser.add_argument("out", type=Path)
    args = parser.parse_args(argv)
    table = collect(args.out, args.paper, args.epoch, tasks)
    print("\n".join(render(table, args.paper, tasks)))


if __name__ == "__main__":
    main()
