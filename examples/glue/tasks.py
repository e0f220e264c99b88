"""Write texts and labels from the files of GLUE, SuperGLUE, CLUE, or a task of your own.

    python tasks.py TASK SOURCE OUT [--text COLUMN [COLUMN]] [--label COLUMN] [--numbers LOW HIGH]

SOURCE is the folder with TASK's files. OUT/input0/SPLIT, OUT/input1/SPLIT and OUT/label/SPLIT get
one example per line, for the splits train, valid and, for MNLI, valid1. OUT/task gets epochs, batch
size, learning rate, warm-up in percent, and flags for fairseq-train. The task `own` has train.tsv
and dev.tsv, or train.jsonl and dev.jsonl; --text and --label name their columns. If labels are
numbers, LOW and HIGH are the ends of their scale, and become 0 and 1.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pronouns

NO_LABEL = ("", "-")  # labels of examples on which annotators disagreed
MOST_LEFT_OUT = 0.05  # share of a file's lines
#: Two texts are separated by </s> </s> in GLUE, as in RoBERTa, and by one </s> in CLUE, as in BERT.
GLUE_FLAGS = ("--separator-token", "2", "--adam-eps", "1e-6")
CLUE_FLAGS = ("--pooler-dropout", "0.1", "--adam-eps", "1e-8")


class Task(NamedTuple):
    """Settings of a task: the format of its files, and the training of a model."""

    text: Tuple[str, ...]  # the column of the sentence, or of each sentence
    label: str = "label"
    classes: int = 2
    scores: Tuple[str, ...] = ("accuracy",)  # the first chooses the checkpoint
    epochs: int = 10
    batch: int = 32
    lr: str = "2e-5"
    warmup: int = 6  # percent of the updates
    numbers: Optional[Tuple[float, float]] = None  # the ends of the scale, if labels are numbers
    header: Tuple[str, ...] = ()  # names of the columns of files without a header
    files: Tuple[str, ...] = ("train", "dev")
    flags: Tuple[str, ...] = GLUE_FLAGS


PAIR = ("sentence1", "sentence2")
F1, CORRELATIONS = ("accuracy", "f1"), ("pearson", "spearman")
SUPERGLUE = Task(("question", "passage"), files=("train", "val"))


def clue(text: Tuple[str, ...], lr: str, epochs: int = 3, **other: Any) -> Task:
    """A task of CLUE, with the settings of the GAU paper's Table 6."""
    usual = {"batch": 16, "warmup": 10, "header": (*text, "label"), "flags": CLUE_FLAGS}
    return Task(text, lr=lr, epochs=epochs, **{**usual, **other})


#: GLUE has the epochs and batch sizes of the TUPE paper's Table 1; README.md has other papers'.
TASKS = {
    "CoLA": Task(
        ("sentence",), scores=("mcc", "accuracy"), header=("source", "label", "mark", "sentence")
    ),
    "SST-2": Task(("sentence",)),
    "MRPC": Task(("#1 String", "#2 String"), "Quality", scores=F1),
    "STS-B": Task(PAIR, "score", 1, CORRELATIONS, numbers=(0, 5)),
    "QQP": Task(("question1", "question2"), "is_duplicate", scores=F1, epochs=5),
    "MNLI": Task(PAIR, "gold_label", 3, epochs=5, files=("train", "dev_matched", "dev_mismatched")),
    "QNLI": Task(("question", "sentence"), epochs=5),
    "RTE": Task(PAIR),
    "BoolQ": SUPERGLUE,
    "CB": SUPERGLUE._replace(text=("premise", "hypothesis"), classes=3),
    "WiC": SUPERGLUE._replace(text=("word", *PAIR)),
    "SuperGLUE-WSC": SUPERGLUE._replace(text=()),
    "AFQMC": clue(PAIR, "3e-5"),
    "CSL": clue(("keyword", "abst"), "2e-5", 4),
    "IFLYTEK": clue(("sentence",), "3e-5", 5, batch=32, classes=119),
    "TNEWS": clue(("sentence",), "2e-5", classes=15),
    "WSC": clue(("text",), "1e-5", 40),
    "CMNLI": clue(PAIR, "3e-5", batch=32, classes=3),
    "own": Task((), epochs=3, classes=1000000),
}
Row = Tuple[str, Dict[str, Any]]


def json_rows(path: Path) -> Iterator[Row]:
    """Yield each line's place (``FILE: line N``, for messages) and its JSON object."""
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            record = json.loads(line)
            if "span1_text" in record.get("target", ()):
                record["text"] = marked(record["text"], record["target"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            sys.exit(f"{where}: is no object of this task ({type(error).__name__}: {error})")
        yield where, record


def marked(text: str, target: Dict[str, Any]) -> str:
    """The text of CLUE's WSC, with [ ] around the noun phrase and _ _ around the pronoun."""
    spans = [(target["span1_index"], target["span1_text"], "[]")]
    spans.append((target["span2_index"], target["span2_text"], "__"))
    for start, span, (left, right) in sorted(spans, reverse=True):
        end = start + len(span)
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"{span!r} at character {start} is not within the text")
        text = text[:start] + left + text[start:end] + right + text[end:]
    return text


def tsv_rows(path: Path, header: Sequence[str], wanted: Sequence[str]) -> Iterator[Row]:
    """Yield each row's place and a dict of its cells; quotation marks are part of the text."""
    names = list(header)
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        cells = line.rstrip("\r").split("\t")
        if number == 1 and (not header or set(wanted) <= set(cells)):
            names = cells  # of two columns with one name (MNLI), the last is used
        elif line:
            yield f"{path}: line {number}", dict(zip(names, cells))


def shown(value: Any) -> str:
    """A JSON value as text: words of a list joined by spaces, true and false in lower case."""
    text = " ".join(value) if isinstance(value, list) else str(value)
    return " ".join((text.lower() if isinstance(value, bool) else text).split())


def examples(task: Task, path: Path) -> Iterator[Tuple[str, List[str], str]]:
    """Yield the place, the texts and the label of each complete example."""
    wanted = (*task.text, task.label)
    rows = json_rows(path) if "json" in path.suffix else tsv_rows(path, task.header, wanted)
    number = left_out = 0
    for where, row in rows:
        number += 1
        cells = [shown(row.get(name, "-")) for name in wanted]
        if cells[-1] in NO_LABEL or not set(wanted) <= set(row):
            left_out += 1
            continue
        if task.text[0] == "word":  # of WiC
            cells = [f"{cells[0]}: {cells[1]}", *cells[2:]]
        yield where, cells[:-1], cells[-1]
    print(f"{path}: {number - left_out} examples, {left_out} left out", file=sys.stderr)
    if left_out > MOST_LEFT_OUT * number or not number:
        sys.exit(f"{path}: many lines lack {', '.join(wanted)}; is it the file of another task?")


def target(task: Task, where: str, label: str) -> str:
    """The label of an example in the form that fairseq reads; numbers are scaled to 0 to 1."""
    if task.numbers is None:
        if len(label.split()) != 1:
            sys.exit(f"{where}: the label {label!r} is no single word, which fairseq needs")
        return label
    low, high = task.numbers
    try:
        number = (float(label) - low) / (high - low)
    except ValueError:
        sys.exit(f"{where}: the label {label!r} is not a number")
    if not 0 <= number <= 1:
        sys.exit(f"{where}: the label {label} is not between {low:g} and {high:g}")
    return repr(round(number, 6))


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())


def found(source: Path, name: str) -> Path:
    """The file of a split."""
    endings = ("tsv", "jsonl", "json")
    paths = [source / f"{name}.{ending}" for ending in endings]
    try:
        return next(path for path in paths if path.is_file())
    except StopIteration:
        sys.exit(f"{source}: has no {name}.tsv, .jsonl or .json")


def prepare(name: str, task: Task, source: Path, out: Path) -> None:
    """Write texts and labels of all splits."""
    labels: Counter[str] = Counter()
    for split, file in zip(("train", "valid", "valid1"), task.files):
        path = found(source, file)
        if task.text:
            read = list(examples(task, path))
        else:
            read = [(str(path), texts, "0") for texts in pronouns.examples(path)]
        targets = [target(task, where, label) for where, _, label in read]
        if split == "train":
            labels.update(targets)
        for (where, _, _), label in zip(read, targets):
            if task.numbers is None and label not in labels:
                sys.exit(f"{where}: the label {label!r} is not one of {', '.join(labels)} (train)")
        if task.text and (len(labels) < 2 or task.numbers is None and len(labels) > task.classes):
            sys.exit(f"{path}: has {len(labels)} labels; {name} has 2 to {task.classes}")
        for number in range(max(len(texts) for _, texts, _ in read)):
            column = [texts[number] if number < len(texts) else "" for _, texts, _ in read]
            write(out / f"input{number}" / split, column)
        write(out / "label" / split, targets)
    if task.text and task.numbers is None:
        write(out / "label" / "dict.txt", [f"{label} {n}" for label, n in labels.most_common()])
    flags = ["--best-checkpoint-metric", task.scores[0]]
    if task.text:
        classes = 1 if task.numbers else len(labels) if name == "own" else task.classes
        flags += ["--metrics", ",".join(task.scores), "--num-classes", str(classes), *task.flags]
    if task.numbers:
        flags.append("--regression-target")
    if len(task.files) > 2:
        flags += ["--valid-subset", "valid,valid1"]
    settings = map(str, (task.epochs, task.batch, task.lr, task.warmup, *flags))
    write(out / "task", [" ".join(settings)])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", nargs="+")
    parser.add_argument("--label")
    parser.add_argument("--numbers", nargs=2, type=float, metavar=("LOW", "HIGH"))
    args = parser.parse_args()
    task = TASKS[args.task]
    if (args.task == "own") != bool(args.text):
        parser.error("--text: is required for the task own, and only allowed there")
    if args.text:
        task = task._replace(text=tuple(args.text), label=args.label or "label")
    if args.numbers:
        task = task._replace(numbers=tuple(args.numbers), scores=CORRELATIONS)
    prepare(args.task, task, args.source, args.out)


if __name__ == "__main__":
    main()
