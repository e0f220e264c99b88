"""The files of a sentence task: examples and their labels read, and what is binarised written."""

import itertools
import json
import math
import os
import shutil
import sys
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import yaml

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_lines, read_lines, write_text
from fairseq_posenc.basics.records import field, some_text
from fairseq_posenc.training.sentence_tasks.tasks import Column, Task, existing, label, present

NO_LABEL = ("", "-")  # label of examples on which the annotators did not agree

Cells = Iterator[Tuple[int, Optional[List[str]]]]


class Example(NamedTuple):
    """An example of a file."""

    where: str  # the file and the line, from 1, for messages
    texts: List[str]  # the sentence, or both
    label: str = ""  # the label, empty in a test set
    id: str = ""  # the name in a submission; in JSON, as it is written there


def marked_spans(text: str, target: Any, where: str) -> str:
    """WSC's text with ``[ ]`` around the noun phrase and ``_ _`` around the pronoun."""
    spans = [
        (
            field(target, f"{name}_index", int, where),
            some_text(target, f"{name}_text", where),
            marks,
        )
        for name, marks in (("span1", ("[", "]")), ("span2", ("_", "_")))
    ]
    for start, span, (left, right) in sorted(spans, reverse=True):
        end = start + len(span)
        if not 0 <= start <= end <= len(text):
            raise UsageError(f"{where}: {span!r} at character {start} is not within the text")
        text = f"{text[:start]}{left}{text[start:end]}{right}{text[end:]}"
    return text


def _json_cells(task: Task, path: str, columns: Sequence[Column]) -> Cells:
    """The values of these keys in every line of a file with a JSON object a line."""
    for number, record in read_json_lines(path):
        where = f"{path}: line {number}"
        absent = [key for key in columns if not isinstance(record, dict) or key not in record]
        if absent:
            raise UsageError(f"{where}: has no {absent[0]}; is this a file of another task?")
        if task.spans and task.spans in record:
            key = str(task.text[-1])
            text = field(record, key, str, where)
            record[key] = marked_spans(text, record[task.spans], where)
        if task.id in record:
            record[task.id] = json.dumps(record[task.id], ensure_ascii=False)
        yield number, [_shown(record[key], f"{where}: {key}") for key in columns]


def _shown(value: Any, where: str) -> str:
    """A value in JSON as text: a list of words with spaces, true and false as they stand there."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    endless = isinstance(value, float) and not math.isfinite(value)
    if endless or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where} is {json.dumps(value)}; expected a text, words or a number")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tsv_cells(task: Task, path: str, columns: Sequence[Column]) -> Cells:
    """The cells of these columns in every line of a file, or None where the line is cut short.

    Columns are separated by tabs, and quotation marks are part of the text, as in the readers
    behind the published scores of GLUE.
    """
    rows: Iterator[Tuple[int, List[str]]]
    rows = ((n, line.rstrip("\r").split("\t")) for n, line in enumerate(read_lines(path), 1))
    first = next(rows, None)
    if first is None:
        return
    names = first[1] if task.header is True else list(task.header or ())
    wanted = [column for column in columns if isinstance(column, str)]
    titled = task.header is True or bool(wanted) and set(wanted) <= set(first[1])
    if titled:
        names = first[1]  # CoLA's test set has a first line with names, unlike the others
    else:
        rows = itertools.chain([first], rows)
    width = len(names) or len(first[1])
    places = [_place(column, names, width, path) for column in columns]
    cut = titled and task.lenient
    for number, cells in rows:
        if cut and len(cells) <= max(places):
            yield number, None
        elif cells == [""] and width > 1:
            continue
        elif len(cells) != width and not cut:
            raise UsageError(f"{path}: line {number}: {len(cells)} columns instead of {width}")
        else:
            yield number, [cells[place] for place in places]


def _place(column: Column, names: Sequence[str], width: int, path: str) -> int:
    if isinstance(column, str) and column in names:
        # MNLI: the last of the columns with that name; earlier ones are of single annotators
        return len(names) - 1 - names[::-1].index(column)
    if isinstance(column, int) and column <= width:
        return column - 1
    there = ", ".join(names[:12]) or f"{width}, counted from 1"
    raise UsageError(f"{path}: has no column {column}, but {there}")


def examples(task: Task, path: str, labelled: bool = True) -> Iterator[Example]:
    """Yield the examples of a file, a JSON object a line if its name says so, otherwise TSV.

    Args:
        labelled: whether it has labels; a file without them must be complete.
    """
    columns = [*task.text, *(() if task.before is None else (task.before,))]
    count = len(columns)
    if labelled:
        columns.append(task.label)
    elif task.id is not None:
        columns.append(task.id)
    read = _json_cells if path.endswith((".json", ".jsonl")) else _tsv_cells
    kept = dropped = 0
    for line, cells in read(task, path, columns):
        where = f"{path}: line {line}"
        cells = cells and [cell.strip() for cell in cells]
        short = cells is None or (labelled and task.lenient and cells[-1] in NO_LABEL)
        if short and labelled:
            dropped += 1
            continue
        if cells is None:
            raise UsageError(f"{where}: has too few columns")
        texts, before, rest = cells[: len(task.text)], cells[len(task.text) : count], cells[count:]
        empty = [c for c, cell in zip(columns, cells) if not cell]
        if empty and (not task.lenient or empty[0] == task.id):
            raise UsageError(f"{where}: column {empty[0]} is empty")
        texts[0] = ": ".join([*before, texts[0]])
        last = rest[0] if rest else str(kept)
        kept += 1
        yield Example(where, texts, last) if labelled else Example(where, texts, id=last)
    if not kept:
        raise UsageError(f"{path}: contains no examples")
    print(f"{path}: {kept} examples, {dropped} lines left out", file=sys.stderr)


class Labels:
    """Labels as fairseq reads them: symbols of a dictionary.

    Args:
        path: the training file.
        train: the training examples.
    """

    def __init__(self, task: Task, path: str, train: Sequence[Example]) -> None:
        counts: Dict[str, int] = Counter()
        limit = task.labels if isinstance(task.labels, int) else math.inf
        for example in train:
            counts[example.label] += 1
            if len(counts) > limit:
                raise UsageError(
                    f"{example.where}: label {example.label!r} is number {len(counts)}, and "
                    f"{task.name} has {limit} labels"
                )
        # fairseq-preprocess orders labels by frequency, too
        self.names = sorted(counts, key=lambda name: (-counts[name], name))
        self.source = f"labels in {path}"
        if isinstance(task.labels, tuple):
            self.names, self.source = list(task.labels), "labels of the task"
        self.counts = [counts[name] for name in self.names]
        if len(self.names) < 2:
            raise UsageError(
                f"{path}: all examples have the label {self.names[0]!r}; nothing can be learned"
            )
        self.found: Dict[str, Any] = {"labels": self.names}
        if "f1" in task.scores and task.positive not in self.names:
            raise UsageError(
                f"{task.name}: positive: {task.positive}: is none of the {self.source} "
                f"({', '.join(self.names[:12])}); name the one whose F1 counts"
            )

    def __call__(self, example: Example) -> str:
        """The line for an example's label."""
        if example.label not in self.names:
            known = ", ".join(self.names[:12])
            raise UsageError(
                f"{example.where}: label {example.label!r} is none of the {self.source} ({known})"
            )
        try:
            return label(example.label)
        except ValueError as error:
            raise UsageError(f"{example.where}: {error}") from error


class Numbers:
    """Numbers: the smallest becomes 0, the largest 1; the arguments are those of ``Labels``."""

    names: Sequence[str] = ()
    counts: Sequence[int] = ()

    def __init__(self, task: Task, path: str, train: Sequence[Example]) -> None:
        self.given = isinstance(task.regression, tuple)
        if isinstance(task.regression, tuple):
            self.bounds = task.regression
        else:
            found = list(map(self._number, train))
            if min(found) == max(found):
                raise UsageError(
                    f"{path}: all examples have the label {found[0]}; nothing can be learned"
                )
            self.bounds = (min(found), max(found))
        self.found: Dict[str, Any] = {"regression": list(self.bounds)}

    def __call__(self, example: Example) -> str:
        """The line for an example's label."""
        low, high = self.bounds
        number = self._number(example)
        if self.given and not low <= number <= high:
            raise UsageError(
                f"{example.where}: label {example.label} is not in {low:g} to {high:g}"
            )
        return repr(round((number - low) / (high - low), 6))

    @staticmethod
    def _number(example: Example) -> float:
        try:
            number = float(example.label)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{example.where}: the label {example.label!r} is not a number")
        return number


def _pasted(cells: Sequence[str]) -> str:
    return "\t".join(" ".join(cell.split()) for cell in cells) + "\n"


def _write(paths: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write every column to its file."""
    for path, column in zip(paths, zip(*rows)):
        with write_text(path) as stream:
            stream.writelines(_pasted([cell]) for cell in column)


def extract(task: Task, folder: str, out: str) -> None:
    """Write the texts, the labels and what was found in the files of a task."""
    task = present(task, folder)
    shutil.rmtree(f"{out}/test", ignore_errors=True)
    path = str(existing(task.train, folder))
    train = list(examples(task, path))
    labels: Union[Labels, Numbers] = (Numbers if task.regression else Labels)(task, path, train)

    def write(split: str, found: Iterable[Example]) -> None:
        files = [f"{out}/{name}/{split}" for name in (*task.inputs, "label")]
        _write(files, ([*example.texts, labels(example)] for example in found))

    write("train", train)
    for split, (name, files) in task.splits().items():
        path = str(existing(files, folder))
        if split.startswith("valid"):
            write(split, examples(task, path))
            continue
        found = list(examples(task, path, labelled=False))
        _write([f"{out}/{name}/{split}" for name in task.inputs], (e.texts for e in found))
        with write_text(f"{out}/test/{name}.tsv") as stream:
            stream.writelines(_pasted([e.id, *e.texts]) for e in found)
    with write_text(f"{out}/label/dict.txt") as stream:
        stream.writelines(f"{name} {n}\n" for name, n in zip(labels.names, labels.counts))
    with write_text(f"{out}/examples") as stream:
        stream.write(f"{len(train)}\n")
    # a test set may have several files, and the submission is named after the one that was read
    tests = {name: os.path.basename(str(existing(f, folder))) for name, f in task.test.items()}
    with write_text(f"{out}/found.yaml") as stream:
        yaml.safe_dump({**labels.found, "test": tests}, stream, allow_unicode=True)
