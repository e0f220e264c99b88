"""Tasks on one or two sentences, described by a YAML file: GLUE's, CLUE's, and a user's own.

The file has the settings of one or more tasks by name; entries whose name begins with a dot are no
tasks. This module imports neither PyTorch nor fairseq.
"""

import hashlib
import os
import shlex
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

import yaml

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import write_text
from fairseq_posenc.flags.yaml_file import in_yaml, plain_name, read_keys, read_yaml
from fairseq_posenc.training.sentence_tasks.settings import (
    CLASS_SCORES,
    NUMBER_SCORES,
    READ,
    Column,
    Files,
)

RATES = ("2e-5", "3e-5", "4e-5", "5e-5")


class Task(NamedTuple):
    """A task on sentences or pairs of sentences.

    Args:
        name: the name of the task.
        entry: the settings as they stand in the YAML file.
        train: file of the training examples.
        valid: files of the validation sets by name; the first chooses the checkpoint.
        text: the columns of the sentence, or of the two sentences.
        label: the column of the label.
        before: the column of a word that is put before the first text, with a colon.
        test: files of the test sets, which need no labels, by the name of their submission.
        id: the column that names an example of a test set; None for its number from 0.
        header: whether the first line of a file names the columns; or their names, for files
            without such a line.
        labels: the labels in order; or how many there are; or None for those in the training file.
        regression: the smallest and the largest number, which become 0 and 1; True for those in the
            training file, False for classes.
        scores: logged scores, with the reported one first.
        positive: the label whose F1 is computed.
        epochs: passes over the training data.
        batch: examples per update, to try.
        lr: learning rates to try.
        lenient: leave out, and count, lines with too few columns or without an agreed label, accept
            empty texts, and do without test sets that are not there.
        spans: in JSON, the key of the two spans of CLUE's WSC.
        papers: other settings with ``--paper``, by its value.
    """

    name: str
    entry: Mapping[str, Any]
    train: Files
    valid: Dict[str, Files]
    text: Tuple[Column, ...]
    label: Column
    before: Optional[Column] = None
    test: Mapping[str, Files] = {}
    id: Optional[Column] = None
    header: Union[bool, Tuple[str, ...]] = True
    labels: Union[None, int, Tuple[str, ...]] = None
    regression: Union[bool, Tuple[float, float]] = False
    scores: Tuple[str, ...] = ()
    positive: str = "1"
    epochs: int = 3
    batch: Tuple[int, ...] = (32,)
    lr: Tuple[str, ...] = RATES
    lenient: bool = False
    spans: str = ""
    papers: Mapping[str, Mapping[str, Any]] = {}

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
        name: the name of the task.
        entry: its settings.
        where: the file, for messages.
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
        _check(for_paper(task, paper, where), f"{where}: papers: {paper}")
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


def for_paper(task: Task, paper: str, where: str = "papers") -> Task:
    """The task with the settings of a paper."""
    return task._replace(**read_keys(task.papers.get(paper, {}), READ, f"{where}: {paper}"))


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


def write_table(path: str, name: str, entry: Mapping[str, Any]) -> None:
    """Write a YAML file with one task."""
    with write_text(path) as stream:
        yaml.safe_dump({name: dict(entry)}, stream, allow_unicode=True, sort_keys=False)


# --- what recipes ask


#: Settings that decide fine-tuning alone, so that their change repeats no preparation.
_OF_TRAINING = ("scores", "positive", "epochs", "batch", "lr", "papers")


def existing(files: Files, folder: str) -> Optional[str]:
    """The first of these files that is in a folder."""
    paths = [os.path.normpath(os.path.join(folder, name)) for name in files]
    return next((path for path in paths if os.path.isfile(path)), None)


def present(task: Task, folder: str) -> Task:
    """The task without the test sets of a benchmark that are not there."""
    if not task.lenient:
        return task
    return task._replace(test={k: v for k, v in task.test.items() if existing(v, folder)})


def plan(task: Task, folder: str, dry_run: bool) -> Dict[str, Any]:
    """What preparing a task needs to know, by the names of variables in its script.

    Args:
        task: the task.
        folder: the folder of its files.
        dry_run: whether its files may be missing.

    Returns:
        INPUTS, names of fairseq's folders for the sentences; LABELS, classes or numbers; READING,
        what decides how files are read; SPLITS and FILES, each set and its file.
    """
    task = present(task, folder)
    reading = {key: value for key, value in task.entry.items() if key not in _OF_TRAINING}
    digest = hashlib.sha256(repr(sorted(reading.items())).encode()).hexdigest()
    splits = {"train": task.train, **{name: files for name, (_, files) in task.splits().items()}}
    found = {}
    for split, files in splits.items():
        found[split] = existing(files, folder) or os.path.join(folder, files[-1])
        if not (dry_run or os.path.isfile(found[split])):
            raise UsageError(f"{found[split]}: no such file, for {split} of {task.name}")
    return {
        "INPUTS": task.inputs,
        "LABELS": "numbers" if task.regression else "classes",
        "READING": digest,
        "SPLITS": list(found),
        "FILES": list(found.values()),
    }


def settings(task: Task, paper: str) -> Dict[str, Any]:
    """What fine-tuning on a task needs to know, by the names of variables in its script.

    Args:
        task: the task.
        paper: the paper whose settings are wanted.

    Returns:
        TARGET, flags for the labels; METRICS, the scores; BEST, the one that chooses; BOUNDS, the
        range of numbers; and what the paper tries: its EPOCHS, BATCHES and RATES.
    """
    task = for_paper(task, paper)
    if not task.outputs:
        raise UsageError(f"{task.name}: the number of labels is unknown; run prepare.sh")
    target = ["--num-classes", task.outputs, *(["--regression-target"] if task.regression else ())]
    valid = [name for name in task.splits() if name.startswith("valid")]
    if len(valid) > 1:
        target += ["--valid-subset", ",".join(valid)]
    if task.positive != "1":
        target += ["--positive-label", task.positive]
    return {
        "TARGET": target,
        "METRICS": ",".join(task.scores),
        "BEST": task.scores[0],
        "BOUNDS": task.regression if isinstance(task.regression, tuple) else (),
        "USUAL_EPOCHS": str(task.epochs),
        "USUAL_BATCHES": task.batch,
        "USUAL_RATES": task.lr,
    }


def assignments(values: Mapping[str, Any]) -> str:
    """Values as a shell script assigns them: texts as texts, and sequences as arrays.

    >>> print(assignments({"A": "x y", "B": ["1", "z's"]}))
    A='x y'
    B=(1 'z'"'"'s')
    """
    return "\n".join(
        f"{name}={shlex.quote(value)}"
        if isinstance(value, str)
        else f"{name}=({' '.join(shlex.quote(str(part)) for part in value)})"
        for name, value in values.items()
    )


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
