"""The tasks of GLUE: columns of their files, scores, and a reader.

    python tasks.py extract TASK FILE FOLDER SPLIT [--keep-case]
    python tasks.py settings TASK [--paper roformer]

`extract` writes FOLDER/input0/SPLIT, input1/SPLIT (for pairs) and label/SPLIT, one example
per line. `settings` prints, for finetune.sh: number of classes, epochs, scores to log, score to
report, batch size, warm-up in percent, Adam's epsilon, learning rates.
"""

import argparse
import contextlib
import sys
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from text import atomic_writer, fail, read_lines


class Task(NamedTuple):
    """One task of GLUE.

    Args:
        sentences: columns of the sentence, or of the two sentences.
        label: column of the label.
        scores: scores that suit the task, with that of the TUPE paper first.
        epochs: fine-tuning epochs in Table 1 of the TUPE paper.
        valid: file names of the validation sets.
        header: names of the columns, for files without a header line.
        roformer: score in the RoFormer paper, where it differs from the TUPE paper.
        scale: divisor of numeric labels; 0 for classes.
        classes: number of classes.
    """

    sentences: Tuple[str, ...]
    label: str
    scores: Tuple[str, ...] = ("accuracy",)
    epochs: int = 10
    valid: Tuple[str, ...] = ("dev",)
    header: Tuple[str, ...] = ()
    roformer: str = ""
    scale: float = 0
    classes: int = 2


PAIR = ("sentence1", "sentence2")
TASKS: Dict[str, Task] = {
    "CoLA": Task(
        ("sentence",),
        "label",
        ("mcc", "accuracy"),
        header=("source", "label", "mark", "sentence"),
    ),
    "SST-2": Task(("sentence",), "label"),
    "MRPC": Task(("#1 String", "#2 String"), "Quality", ("accuracy", "f1"), roformer="f1"),
    "STS-B": Task(
        PAIR, "score", ("pearson", "spearman"), roformer="spearman", scale=5.0, classes=1
    ),
    "QQP": Task(
        ("question1", "question2"), "is_duplicate", ("accuracy", "f1"), epochs=5, roformer="f1"
    ),
    "MNLI": Task(PAIR, "gold_label", epochs=5, valid=("dev_matched", "dev_mismatched"), classes=3),
    "QNLI": Task(("question", "sentence"), "label", epochs=5),
    "RTE": Task(PAIR, "label"),
}


def reported(task: Task, paper: str) -> str:
    """The score that a paper reports for a task."""
    return task.roformer if paper == "roformer" and task.roformer else task.scores[0]


def examples(task: Task, path: str, keep_case: bool) -> Iterator[List[str]]:
    """Yield the sentences and the label of every example of a file.

    Columns are separated by tabs, and quotation marks are part of the text, as in the readers
    behind the published scores.  Lines with too few columns (QQP's training set has some) and
    examples without an agreed label are left out, and their number is reported on standard error.

    Args:
        task: the task.
        path: a TSV file in GLUE's original layout.
        keep_case: do not lower-case the text.
    """
    lines = read_lines(path)
    header = list(task.header) or next(lines, "").lstrip("\ufeff").rstrip("\r").split("\t")
    wanted = (*task.sentences, task.label)
    missing = [name for name in wanted if name not in header]
    if missing:
        fail(f"{path}: has no column {missing[0]}, but {', '.join(header[:12])}")
    # MNLI: the last of the columns with that name; earlier ones are of single annotators
    places = [len(header) - 1 - header[::-1].index(name) for name in wanted]
    kept = dropped = 0
    for line in lines:
        cells = line.lstrip("\ufeff").rstrip("\r").split("\t")
        if len(cells) <= max(places) or cells[places[-1]] in ("", "-"):
            dropped += 1
            continue
        *sentences, label = (cells[place].strip() for place in places)
        kept += 1
        yield [*(s if keep_case else s.lower() for s in sentences), _label(task, label, path)]
    if not kept:
        fail(f"{path}: contains no examples")
    print(f"{path}: {kept} examples, {dropped} lines left out", file=sys.stderr)


def _label(task: Task, text: str, path: str) -> str:
    if not task.scale:
        return text
    try:
        return repr(round(float(text) / task.scale, 6))
    except ValueError:
        fail(f"{path}: the {task.label} {text!r} is not a number")


def write_examples(task: Task, found: Iterable[Sequence[str]], folder: str, split: str) -> None:
    """Write the examples of a file, with one text per sentence column and one for the labels."""
    names = ["input0", "input1"][: len(task.sentences)] + ["label"]
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(atomic_writer(f"{folder}/{n}/{split}")) for n in names]
        for example in found:
            for stream, cell in zip(streams, example):
                stream.write(" ".join(cell.split()) + "\n")


def print_settings(
    task: Task,
    paper: str,
    batch: int = 32,
    warmup: int = 6,
    epsilon: str = "1e-6",
    rates: str = "2e-5 3e-5 4e-5 5e-5",
) -> None:
    """Print the settings for finetune.sh; the defaults are those of the papers on GLUE."""
    epochs = 3 if paper == "roformer" else task.epochs
    best = reported(task, paper)
    print(task.classes, epochs, ",".join(task.scores), best, batch, warmup, epsilon, rates)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", metavar="{extract,settings}")
    actions.required = True
    extracting = actions.add_parser("extract", help="write sentences and labels of a file")
    settings = actions.add_parser("settings", help="print the settings for fine-tuning")
    for action in (extracting, settings):
        action.add_argument("task", choices=TASKS, metavar="TASK")
    for name in ("file", "folder", "split"):
        extracting.add_argument(name)
    extracting.add_argument("--keep-case", action="store_true", help="do not lower-case the text")
    settings.add_argument("--paper", choices=["tupe", "roformer"], default="tupe")
    args = parser.parse_args(argv)
    task = TASKS[args.task]
    if args.action == "extract":
        found = examples(task, args.file, args.keep_case)
        write_examples(task, found, args.folder, args.split)
    else:
        print_settings(task, args.paper)


if __name__ == "__main__":
    main()
