"""Tasks on one or two sentences, described by a YAML file: GLUE's, CLUE's, and a user's own.

The file has the settings of one or more tasks by name; entries whose name begins with a dot are no
tasks. This module imports neither PyTorch nor fairseq.
"""

import math
import os
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

import yaml

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import write_text
from fairseq_posenc.flags.yaml_file import (
    count,
    in_yaml,
    keys,
    named,
    one_of,
    plain_name,
    read_keys,
    read_yaml,
    several,
    text,
)
from fairseq_posenc.training.sentence_tasks.scores import SCORES

Column = Union[int, str]  # a number from 1, or a name
Files = Tuple[str, ...]  # the first file that exists is read
CLASS_SCORES = tuple(name for name, score in SCORES.items() if not score.regression)
NUMBER_SCORES = tuple(name for name, score in SCORES.items() if score.regression)


# --- readers of the keys: each returns the value, or raises ValueError with what is expected


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _column(value: Any) -> Column:
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    return text(value)


def _columns(value: Any) -> Tuple[Column, ...]:
    found = several(_column)(value)
    if len(found) > 2:
        raise ValueError("expected one column, or two for pairs")
    return found


def _sets(value: Any) -> Dict[str, Files]:
    if isinstance(value, dict):
        return named(several(text), "files by name of the set")(value)
    return {"": several(text)(value)}


def _header(value: Any) -> Union[bool, Tuple[str, ...]]:
    return value if isinstance(value, bool) else several(text)(value)


def label(value: Any) -> str:
    """A label, which has to be one symbol of a dictionary of fairseq."""
    word = text(value)
    if word.split() != [word] or word in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
        raise ValueError(f"the label {word!r} is no word that fairseq could read; rename it")
    return word


def _labels(value: Any) -> Union[None, int, Tuple[str, ...]]:
    if value is None:
        return None
    if not isinstance(value, list):
        return count(value)
    if len(value) < 2:
        raise ValueError("expected two or more labels")
    return several(label)(value)


def _regression(value: Any) -> Union[bool, Tuple[float, float]]:
    if isinstance(value, bool):
        return value
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(map(_finite, numbers)) or not numbers[0] < numbers[1]:
        raise ValueError("expected true, or the smallest and the largest label: [0, 5]")
    return float(numbers[0]), float(numbers[1])


def _finite(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _rate(value: Any) -> str:
    if not re.fullmatch(r"[0-9.]+(e-[0-9]+)?", text(value)) or not float(value) > 0:
        raise ValueError("expected numbers such as 2e-5")
    return str(value)


READ: Dict[str, Callable[[Any], Any]] = {
    "train": several(text),
    "valid": _sets,
    "test": _sets,
    "text": _columns,
    "before": _column,
    "label": _column,
    "id": _column,
    "header": _header,
    "labels": _labels,
    "regression": _regression,
    "scores": several(one_of(*CLASS_SCORES, *NUMBER_SCORES)),
    "positive": label,
    "epochs": count,
    "batch": several(count),
    "lr": several(_rate),
    "lenient": _flag,
    "spans": text,
    "papers": named(lambda value: keys(READ)(value), "settings by the name of a paper"),
}


# --- the tasks

RATES = ("2e-5", "3e-5", "4e-5", "5e-5")


class Task(NamedTuple):
    """A task on sentences or pairs of sentences."""

    name: str  # the name of the task
    entry: Mapping[str, Any]  # the settings as they stand in the YAML file
    train: Files  # file of the training examples
    # files of the validation sets by name; the first chooses the checkpoint
    valid: Dict[str, Files]
    text: Tuple[Column, ...]  # the columns of the sentence, or of the two sentences
    label: Column  # the column of the label
    # the column of a word that is put before the first text, with a colon
    before: Optional[Column] = None
    # files of the test sets, which need no labels, by the name of their submission
    test: Mapping[str, Files] = {}
    # the column that names an example of a test set; None for its number from 0
    id: Optional[Column] = None
    # whether the first line of a file names the columns; or their names, for files without such a
    # line
    header: Union[bool, Tuple[str, ...]] = True
    # the labels in order; or how many there are; or None for those in the training file
    labels: Union[None, int, Tuple[str, ...]] = None
    # the smallest and the largest number, which become 0 and 1; True for those in the training
    # file, False for classes
    regression: Union[bool, Tuple[float, float]] = False
    scores: Tuple[str, ...] = ()  # logged scores, with the reported one first
    positive: str = "1"  # the label whose F1 is computed
    epochs: int = 3  # passes over the training data
    batch: Tuple[int, ...] = (32,)  # examples per update, to try
    lr: Tuple[str, ...] = RATES  # learning rates to try
    # leave out, and count, lines with too few columns or without an agreed label, accept empty
    # texts, and do without test sets that are not there
    lenient: bool = False
    spans: str = ""  # in JSON, the key of the two spans of CLUE's WSC
    papers: Mapping[str, Mapping[str, Any]] = {}  # other settings with ``--paper``, by its value

    @property
    def inputs(self) -> List[str]:
        """The names of fairseq's folders for the sentences."""
        return ["input0", "input1"][: len(self.text)]

    @property
    def outputs(self) -> int:
        """The number of classes, or 1 for a number."""
        labels = self.labels if isinstance(self.labels, int) else len(self.labels or ())
        return 1 if self.regression else labels

    def splits(self) -> Dict[str, Tuple[str, Files]]:
        """fairseq's names of the validation and test sets, with ours and their files."""
        sets = (("valid", self.valid), ("test", self.test))
        return {
            f"{kind}{number or ''}": entry
            for kind, named in sets
            for number, entry in enumerate(named.items())
        }


_REQUIRED = ("train", "valid", "text", "label")


def read_task(name: str, entry: Any, where: str) -> Task:
    """The task that an entry of a YAML file describes.

    Args:
        entry: the settings of the task.
    """
    if not isinstance(entry, dict):
        raise UsageError(
            f"{where}: {name}: expected the name of a task with its settings indented below it"
        )
    where = f"{where}: {name}"
    values = read_keys(entry, READ, where)
    for key in _REQUIRED:
        if key not in values:
            raise UsageError(f"{where}: has no {key}; a task needs {', '.join(_REQUIRED)}")
    for key in ("valid", "test"):  # a single set has the name of the task
        values[key] = {title or name: files for title, files in values.get(key, {}).items()}
    numbers = bool(values.get("regression"))
    values.setdefault("scores", NUMBER_SCORES if numbers else CLASS_SCORES[:1])
    task = Task(name, entry, **values)
    _check(task, where)
    for paper in task.papers:
        _check(for_paper(task, paper), f"{where}: papers: {paper}")
    return task


def _check(task: Task, where: str) -> None:
    columns = (*task.text, task.label, *(() if task.before is None else (task.before,)))
    names = [column for column in columns if isinstance(column, str)]
    known = task.header
    if len(set(columns)) < len(columns):
        raise UsageError(
            f"{where}: text, label and before: {in_yaml(list(columns))}: the same column twice"
        )
    if known is False and names:
        raise UsageError(
            f"{where}: column {names[0]}: is a name, but header is false; give numbers from 1"
        )
    if isinstance(known, tuple):
        for name in names:
            if name not in known:
                raise UsageError(f"{where}: column {name}: header has only {', '.join(known)}")
    if task.regression and task.labels is not None:
        raise UsageError(f"{where}: labels: are for classes; leave them out, or regression")
    fitting = NUMBER_SCORES if task.regression else CLASS_SCORES
    for score in task.scores:
        if score not in fitting:
            kind = "numbers (regression)" if task.regression else "classes"
            raise UsageError(f"{where}: scores: {score}: for {kind} there are {', '.join(fitting)}")
    if "f1" in task.scores and isinstance(task.labels, tuple):
        if task.positive not in task.labels:
            raise UsageError(
                f"{where}: positive: {task.positive}: no such label; name the one whose F1 counts, "
                f"of {', '.join(task.labels)}"
            )


def for_paper(task: Task, paper: str) -> Task:
    """The task with the settings of a paper."""
    return task._replace(**task.papers.get(paper, {}))


def read_table(path: str) -> Dict[str, Task]:
    """The tasks of a YAML file by name."""
    content = read_yaml(path, "the file of the tasks")
    tasks = {}
    for name, entry in (content if isinstance(content, dict) else {}).items():
        if str(name).startswith("."):
            continue
        tasks[str(name)] = read_task(str(name), entry, path)
        try:
            plain_name(name)
        except ValueError as error:
            raise UsageError(f"{path}: {name}: {error}") from error
    if not tasks:
        raise UsageError(
            f"{path}: describes no task; write its name, and its settings indented below it"
        )
    return tasks


def task_in(path: str, name: str) -> Task:
    """A task of a YAML file; the only one in the file of prepared data, whatever its folder's name.

    Raises:
        UsageError: there is none of that name.
    """
    table = read_table(path)
    task = table.get(name) or (next(iter(table.values())) if len(table) == 1 else None)
    if task is None:
        raise UsageError(f"{path}: {name}: no such task; there are {', '.join(table)}")
    return task


def write_table(path: str, name: str, entry: Mapping[str, Any]) -> None:
    """Write a YAML file with one task."""
    with write_text(path) as stream:
        yaml.safe_dump({name: dict(entry)}, stream, allow_unicode=True, sort_keys=False)


def existing(files: Files, folder: str) -> Optional[str]:
    """The first of these files that is in a folder."""
    paths = [os.path.normpath(os.path.join(folder, name)) for name in files]
    return next((path for path in paths if os.path.isfile(path)), None)


def present(task: Task, folder: str) -> Task:
    """The task without the test sets of a benchmark that are not there."""
    if not task.lenient:
        return task
    return task._replace(test={k: v for k, v in task.test.items() if existing(v, folder)})
