"""The files of a sentence task: reading examples, and writing what is to be binarised.

    python task_files.py extract TABLE TASK FOLDER OUT
    python task_files.py describe TABLE TASK FOUND FILE

`extract` reads the files in FOLDER of a task of TABLE, a YAML file as tasks.py reads. It writes
OUT/input0/SPLIT, OUT/input1/SPLIT (for pairs) and OUT/label/SPLIT, one example a line,
OUT/label/dict.txt, OUT/test/NAME.tsv with number and sentences of the test sets, and what it found
to OUT/found.yaml. `describe` writes the task with what was found to FILE.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import shutil
import sys
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import yaml
from task_settings import Column
from tasks import Task, existing, present, read_table, write_table
from text import atomic_writer, fail, read_lines

NO_LABEL = ("", "-")  # of examples on whose label the annotators did not agree


class Example(NamedTuple):
    """An example of a file.

    Args:
        line: its line, from 1.
        texts: the sentence, or both.
        label: the label, empty in a test set.
        id: its name in a submission; in JSON, as it is written there.
    """

    line: int
    texts: List[str]
    label: str = ""
    id: str = ""


Cells = Iterator[Tuple[int, Optional[List[str]]]]


def marked_spans(text: str, target: Dict[str, Any]) -> str:
    """WSC's text with ``[ ]`` around the noun phrase and ``_ _`` around the pronoun."""
    spans = [
        (target[f"{name}_index"], target[f"{name}_text"], marks)
        for name, marks in (("span1", "[]"), ("span2", "__"))
    ]
    for start, span, (left, right) in sorted(spans, reverse=True):
        end = start + len(span)
        text = f"{text[:start]}{left}{text[start:end]}{right}{text[end:]}"
    return text


def _json_cells(task: Task, path: str, columns: Sequence[Column]) -> Cells:
    """The values of these keys in every line of a file with a JSON object a line."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if task.spans and task.spans in record:
                key = task.text[-1]
                record[key] = marked_spans(record[key], record[task.spans])
            if task.id in record:
                record[task.id] = json.dumps(record[task.id], ensure_ascii=False)
            cells = [record[key] for key in columns]
        except KeyError as error:
            fail(f"{path}: line {number} has no {error}; is this a file of another task?")
        except (ValueError, TypeError) as error:
            fail(f"{path}: line {number}: {error}")
        yield number, [" ".join(c) if isinstance(c, list) else str(c) for c in cells]


def _tsv_cells(task: Task, path: str, columns: Sequence[Column]) -> Cells:
    """The cells of these columns in every line of a file, or None where the line is cut short.

    Columns are separated by tabs, and quotation marks are part of the text, as in the readers
    behind the published scores of GLUE.
    """
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
            fail(f"{path}: line {number}: {len(cells)} columns instead of {width}")
        else:
            yield number, [cells[place] for place in places]


def _place(column: Column, names: Sequence[str], width: int, path: str) -> int:
    if isinstance(column, str) and column in names:
        # MNLI: the last of the columns with that name; earlier ones are of single annotators
        return len(names) - 1 - names[::-1].index(column)
    if isinstance(column, int) and column <= width:
        return column - 1
    there = ", ".join(names[:12]) or f"{width}, counted from 1"
    fail(f"{path}: has no column {column}, but {there}")


def examples(task: Task, path: str, labelled: bool = True) -> Iterator[Example]:
    """Yield the examples of a file, a JSON object a line if its name says so, otherwise TSV.

    Args:
        task: the task.
        path: the file.
        labelled: whether it has labels; a file without them must be complete.
    """
    columns = [*task.text]
    if labelled:
        columns.append(task.label)
    elif task.id is not None:
        columns.append(task.id)
    read = _json_cells if path.endswith((".json", ".jsonl")) else _tsv_cells
    kept = dropped = 0
    for line, cells in read(task, path, columns):
        cells = cells and [cell.strip() for cell in cells]
        short = cells is None or (labelled and task.lenient and cells[-1] in NO_LABEL)
        if short and labelled:
            dropped += 1
            continue
        if cells is None:
            fail(f"{path}: line {line}: has too few columns")
        texts, rest = cells[: len(task.text)], cells[len(task.text) :]
        empty = [c for c, cell in zip(columns, cells) if not cell]
        if empty and (not task.lenient or empty[0] == task.id):
            fail(f"{path}: line {line}: column {empty[0]} is empty")
        last = rest[0] if rest else str(kept)
        kept += 1
        yield Example(line, texts, last) if labelled else Example(line, texts, id=last)
    if not kept:
        fail(f"{path}: contains no examples")
    print(f"{path}: {kept} examples, {dropped} lines left out", file=sys.stderr)


class Labels:
    """Labels as fairseq reads them: symbols of a dictionary.

    Args:
        task: the task.
        path: the training file.
        train: its examples.
    """

    def __init__(self, task: Task, path: str, train: Sequence[Example]) -> None:
        counts = Counter(example.label for example in train)
        listed = isinstance(task.labels, tuple)
        # by frequency, as fairseq-preprocess orders them
        self.names = sorted(counts, key=lambda name: (-counts[name], name))
        if listed:
            self.names = list(task.labels)
        self.counts = [counts[name] for name in self.names]
        limit = task.labels if isinstance(task.labels, int) else len(self.names)
        if len(self.names) > limit:
            rare = next(e for e in train if e.label in self.names[limit:])
            fail(f"{path}: line {rare.line}: label {rare.label!r} is one more than the {limit}")
        self.source = "labels of the task" if listed else f"labels in {path}"
        if len(self.names) < 2:
            fail(f"{path}: all examples have the label {self.names[0]!r}; nothing can be learned")
        self.found: Dict[str, Any] = {"labels": self.names}
        if "f1" in task.scores and task.positive not in self.names:
            fail(
                f"{task.name}: positive: {task.positive}: is none of the {self.source} "
                f"({', '.join(self.names[:12])}); name the one whose F1 counts"
            )

    def __call__(self, example: Example, path: str) -> str:
        """The line for an example's label."""
        if example.label not in self.names:
            known = ", ".join(self.names[:12])
            fail(
                f"{path}: line {example.line}: label {example.label!r} is none of the "
                f"{self.source} ({known})"
            )
        if len(example.label.split()) > 1:
            fail(f"{path}: line {example.line}: label {example.label!r}: fairseq needs one word")
        return example.label


class Numbers:
    """Numbers, of which the smallest becomes 0 and the largest 1; arguments as of ``Labels``."""

    names: Sequence[str] = ()
    counts: Sequence[int] = ()

    def __init__(self, task: Task, path: str, train: Sequence[Example]) -> None:
        self.bounds = task.regression
        if self.bounds is True:
            found = [self._number(example, path) for example in train]
            if min(found) == max(found):
                fail(f"{path}: all examples have the label {found[0]}; nothing can be learned")
            self.bounds = (min(found), max(found))
        self.given = task.regression is not True
        self.found: Dict[str, Any] = {"regression": list(self.bounds)}

    def __call__(self, example: Example, path: str) -> str:
        """The line for an example's label."""
        low, high = self.bounds
        number = self._number(example, path)
        if self.given and not low <= number <= high:
            fail(
                f"{path}: line {example.line}: label {example.label} is not in {low:g} to {high:g}"
            )
        return repr(round((number - low) / (high - low), 6))

    @staticmethod
    def _number(example: Example, path: str) -> float:
        try:
            number = float(example.label)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            fail(f"{path}: line {example.line}: the label {example.label!r} is not a number")
        return number


def _paste(cells: Sequence[str]) -> str:
    return "\t".join(" ".join(cell.split()) for cell in cells) + "\n"


def _write(texts: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    """Write the cells of every row to the files of the columns."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(atomic_writer(path)) for path in texts]
        for row in rows:
            for stream, cell in zip(streams, row):
                stream.write(_paste([cell]))


def extract(task: Task, folder: str, out: str) -> None:
    """Write the texts, the labels and what was found in the files of a task."""
    task = present(task, folder)
    shutil.rmtree(f"{out}/test", ignore_errors=True)
    path = str(existing(task.train, folder))
    train = list(examples(task, path))
    labels: Union[Labels, Numbers] = (Numbers if task.regression else Labels)(task, path, train)

    def write(split: str, path: str, found: Any) -> None:
        files = [f"{out}/{name}/{split}" for name in (*task.inputs, "label")]
        _write(files, ([*e.texts, labels(e, path)] for e in found))

    write("train", path, train)
    for split, (name, files) in task.splits().items():
        path = str(existing(files, folder))
        if split.startswith("valid"):
            write(split, path, examples(task, path))
            continue
        found = list(examples(task, path, labelled=False))
        _write([f"{out}/{name}/{split}" for name in task.inputs], (e.texts for e in found))
        with atomic_writer(f"{out}/test/{name}.tsv") as stream:
            stream.writelines(_paste([e.id, *e.texts]) for e in found)
    with atomic_writer(f"{out}/label/dict.txt") as stream:
        stream.writelines(f"{name} {n}\n" for name, n in zip(labels.names, labels.counts))
    # where there are several, the file that was read
    tests = {name: os.path.basename(str(existing(f, folder))) for name, f in task.test.items()}
    with atomic_writer(f"{out}/found.yaml") as stream:
        yaml.safe_dump({**labels.found, "test": tests}, stream, allow_unicode=True)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["extract", "describe"])
    for name in ("table", "task", "source", "target"):
        parser.add_argument(name)
    args = parser.parse_args(argv)
    task = read_table(args.table)[args.task]
    if args.action == "extract":
        extract(task, args.source, args.target)
    else:
        found = yaml.safe_load("\n".join(read_lines(args.source)))
        write_table(args.target, args.task, {**task.entry, **found})


if __name__ == "__main__":
    main()
