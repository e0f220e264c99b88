"""Print a table of fine-tuning scores, with the best learning rate for each task.

    fairseq-posenc script scores.py [--paper roformer] [--epoch last] [--reading READING] OUT
    fairseq-posenc script scores.py [--paper roformer] --best-runs N [--prune] OUT/MODEL/TASK

OUT is the output folder of finetune.sh, with OUT/MODEL/TASK/lrRATE-batchN-seedSEED/train.log; in
folders of earlier versions, lrRATE-seedSEED, the batch is the paper's. The score of a run is that
of its best epoch, or of its last. Over the seeds of a learning rate (and batch size), the table
gives the median, as in the papers of TUPE and RoBERTa, or with --paper roformer or gau the mean and
standard deviation, and it reports the best learning rate. All scores are in percent. With
`--reading`, the table has the tasks of examples/reading, too: READING is the output folder of its
finetune.sh. `--best-runs` prints the folders of the N best runs of one task, best first, and their
scores on the (first) validation set; with `--prune`, it removes the checkpoints of all others.
"""

import re
import statistics
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import reading_scores

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.flags.usage import documented_parser
from fairseq_posenc.training.sentence_tasks.tasks import Task, for_paper, read_table

EXAMPLES = Path(__file__).resolve().parents[1]
CHECKPOINT = "checkpoint_best.pt"
MEDIANS = ("tupe", "roberta")  # papers that report the median of the seeds
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
    """The median over seeds for the papers of TUPE and RoBERTa, otherwise the mean."""
    return statistics.median(scores) if paper in MEDIANS else statistics.mean(scores)


def score_of(log: Path, subset: str, name: str, epoch: str) -> Optional[float]:
    """The score of one run, or None if its log has none.

    Args:
        log: a log of fairseq-train with --log-format json.
        subset: name of the validation set, valid or valid1.
        name: name of the score.
        epoch: best or last.
    """
    entries = reading_scores.entries_of(log)
    found = [float(entry[key]) for entry in entries for key in [f"{subset}_{name}"] if key in entry]
    if not found:
        return None
    return max(found) if epoch == "best" else found[-1]


def known_tasks() -> Dict[str, Task]:
    """The tasks of the benchmarks."""
    tables = [EXAMPLES / "glue" / f"{name}.yaml" for name in ("tasks", "superglue")]
    tables.append(EXAMPLES / "clue" / "tasks.yaml")
    known: Dict[str, Task] = {}
    for table in tables:
        for name, task in read_table(str(table)).items():
            known.setdefault(name, task)  # RTE is GLUE's
    return known


def task_of(folder: Path, known: Mapping[str, Task]) -> Optional[Task]:
    """The task of the runs in a folder OUT/MODEL/TASK."""
    described = folder / "task.yaml"  # absent from folders of older versions
    if described.is_file():
        return next(iter(read_table(str(described)).values()))
    return known.get(folder.name)


def runs_of(folder: Path, task: Task, paper: str) -> List[Tuple[Path, str]]:
    """The logs of the complete runs in OUT/MODEL/TASK, with learning rate (and batch size).

    The batch size is left out where it is the only one that the paper tries.
    """
    usual = [str(batch) for batch in for_paper(task, paper).batch]
    found = ((log, RUN.fullmatch(log.parent.name)) for log in sorted(folder.glob("*/train.log")))
    runs = []
    for log, run in found:
        if run is not None:
            rate, batch = run.group(1, 2)
            runs.append((log, rate if batch is None or [batch] == usual else f"{rate} x {batch}"))
    return runs


def reported(log: Path, task: Task, paper: str, subset: str, epoch: str) -> Tuple[str, float]:
    """The score that a paper reports for a task: its name, and its value in a run."""
    name = for_paper(task, paper).scores[0]
    score = score_of(log, subset, name, epoch)
    if score is None:
        raise UsageError(f"{log}: contains no {subset}_{name}")
    return name, score


def best_runs(folder: Path, paper: str, count: int, prune: bool = False) -> List[str]:
    """The folders of the best runs in OUT/MODEL/TASK, each with its score in words after a tab.

    Runs without a checkpoint, because of ``--no-model``, are not considered.

    Args:
        folder: OUT/MODEL/TASK.
        paper: the paper whose score decides.
        count: the largest number of runs.
        prune: whether to remove the checkpoints of the other complete runs.
    """
    task = task_of(folder, known_tasks())
    runs = [] if task is None else runs_of(folder, task, paper)
    logs = [log for log, _ in runs if (log.parent / CHECKPOINT).is_file()]
    if task is None or not logs:
        raise UsageError(
            f"{folder}: has no complete run with a {CHECKPOINT}; remove its runs to repeat them"
        )
    scores = {log: reported(log, task, paper, "valid", "best") for log in logs}
    best = sorted(logs, key=lambda log: -scores[log][1])
    for log in best[count:] if prune else ():
        (log.parent / CHECKPOINT).unlink()
    best = best[:count]
    return ["{}\t{} {:.2f} on the validation set".format(log.parent, *scores[log]) for log in best]


class Column(NamedTuple):
    """A column of the table: the place of the task and of its validation set, and the title."""

    task: int
    name: str
    subset: str
    title: str


Table = Dict[str, Dict[Column, Cell]]


def collect(out: Path, paper: str, epoch: str, reading: Optional[Path] = None) -> Table:
    """Scores by model and by validation set.

    Args:
        out: the output folder of finetune.sh.
        paper: the paper whose table is shown.
        epoch: best or last.
        reading: the folder that finetune.sh of examples/reading wrote.
    """
    table: Table = {}
    known = known_tasks()
    order = {name: number for number, name in enumerate(known)}
    for folder in sorted(path for path in out.glob("*/*") if path.is_dir()):
        task = task_of(folder, known)
        for log, setting in runs_of(folder, task, paper) if task else ():
            for subset, (title, _) in task.splits().items():
                if not subset.startswith("valid"):
                    continue
                name, score = reported(log, task, paper, subset, epoch)
                place = order.get(folder.name, len(order))
                title = folder.name if len(task.valid) == 1 else title
                column = Column(place, folder.name, subset, f"{title} ({name})")
                cell = table.setdefault(folder.parent.name, {}).setdefault(column, Cell({}))
                cell.runs.setdefault(setting, []).append(score)
    for model, task, name, rate, score in (
        reading_scores.reported(reading, epoch) if reading else ()
    ):
        place = len(order) + 1 + reading_scores.TASKS.index(task)
        column = Column(place, task, "valid", f"{task.upper()} ({name})")
        cell = table.setdefault(model, {}).setdefault(column, Cell({}))
        cell.runs.setdefault(rate, []).append(score)
    if not table:
        raise UsageError(
            f"{out}: contains no runs of finetune.sh (MODEL/TASK/lrRATE-seedSEED/train.log)"
        )
    return table


def render(table: Table, paper: str) -> List[str]:
    """The table in Markdown, a row per model and a column per validation set, then its details."""
    columns = sorted({column for cells in table.values() for column in cells})
    rows = []
    for model, cells in table.items():
        best = {column: cells[column].best(paper) for column in columns if column in cells}
        row = [f"{best[c][1]:.2f}" if c in best else "" for c in columns]
        whole = len(best) == len(columns)
        row.append(f"{statistics.mean(s for _, s in best.values()):.2f}" if whole else "")
        rows.append([model, *row])
    lines = markdown_table(["model", *(column.title for column in columns), "average"], rows)
    kind = "median" if paper in MEDIANS else "mean and standard deviation"
    lines += ["", f"{kind} of the seeds, by learning rate (x batch size):".capitalize(), ""]
    rates = sorted(
        {r for row in table.values() for cell in row.values() for r in cell.runs},
        key=lambda rate: [float(part) for part in rate.split(" x ")],
    )
    details = []
    for model, cells in table.items():
        for column in sorted(cells):
            runs = cells[column].runs
            seeds = "/".join(map(str, sorted({len(scores) for scores in runs.values()})))
            row = [_describe(runs.get(rate, []), paper) for rate in rates]
            details.append([model, column.title, seeds, *row])
    return lines + markdown_table(["model", "set (score)", "seeds", *rates], details)


def _describe(scores: Sequence[float], paper: str) -> str:
    if not scores:
        return ""
    text = f"{combine(scores, paper):.2f}"
    if paper not in MEDIANS and len(scores) > 1:
        text += f" ± {statistics.stdev(scores):.2f}"
    return text


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("--paper", choices=["tupe", "roformer", "roberta", "gau"], default="tupe")
    parser.add_argument("--epoch", choices=["best", "last"], default="best")
    parser.add_argument("--reading", type=Path, help="runs of the tasks of examples/reading")
    parser.add_argument("--best-runs", type=int, metavar="N", help="print the N best runs' folders")
    parser.add_argument("out", type=Path)
    parser.add_argument("--prune", action="store_true", help="remove the others' checkpoints")
    args = parser.parse_args(argv)
    if args.best_runs is not None:
        lines = best_runs(args.out, args.paper, args.best_runs, args.prune)
    else:
        lines = render(collect(args.out, args.paper, args.epoch, args.reading), args.paper)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
