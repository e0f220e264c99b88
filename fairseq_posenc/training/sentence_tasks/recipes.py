"""What recipes ask of sentence tasks: variables of scripts, descriptions, and submissions."""

import hashlib
import json
import os
import shlex
from typing import Any, Dict, Iterator, Mapping

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_pairs, write_text
from fairseq_posenc.flags.yaml_file import read_yaml
from fairseq_posenc.training.sentence_tasks.tasks import (
    Task,
    existing,
    for_paper,
    present,
    read_table,
    write_table,
)

#: Settings that decide fine-tuning alone, so that their change repeats no preparation.
_OF_TRAINING = ("scores", "positive", "epochs", "batch", "lr", "papers")


def plan(task: Task, folder: str, dry_run: bool) -> Dict[str, Any]:
    """What preparing a task needs to know, by the names of variables in its script.

    Args:
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
        paper: the paper whose settings are wanted.

    Returns:
        TARGET, flags for the labels; METRICS, the scores; BEST, the one that chooses; BOUNDS, the
        range of numbers; and what the paper tries: USUAL_EPOCHS, USUAL_BATCHES, USUAL_RATES.
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


def describe(task: Task, found: str, path: str) -> None:
    """Write the description of a prepared task.

    Args:
        found: found.yaml, what ``sentence-task extract`` found in its files.
    """
    write_table(path, task.name, {**task.entry, **read_yaml(found, "what was found")})


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


def lines(task: Task, name: str, test: str, predictions: str) -> Iterator[str]:
    """The lines of a submission.

    Args:
        task: the task, as prepared.
        test: the file of the test set, with the examples' numbers in the first column.
        predictions: for each, a label and its probability, or a number.
    """
    as_json, key = suffix_of(task, name) != "tsv", json.dumps(task.id or "id")
    if not as_json:
        yield "index\tprediction"
    for number, (row, answer) in enumerate(read_pairs(test, predictions), 1):
        index, label = row.split("\t")[0], answer.split("\t")[0]
        if not label:
            raise UsageError(
                f"{test}: line {number} is empty, so there is no prediction for {index}"
            )
        if isinstance(task.regression, tuple):
            low, high = task.regression
            label = f"{min(max(float(label), low), high):.3f}"
        elif not isinstance(task.labels, tuple) or label not in task.labels:
            raise UsageError(f"{predictions}: line {number}: {label} is no label of {task.name}")
        # in JSON, the number is as it stood there
        text = json.dumps(label, ensure_ascii=False)
        yield f'{{{key}: {index}, "label": {text}}}' if as_json else f"{index}\t{label}"


def suffix_of(task: Task, name: str) -> str:
    """The ending of the submission for a test set: that of its file if it is JSON, else tsv."""
    ending = task.test[name][0].rpartition(".")[2]
    return ending if ending in ("json", "jsonl") else "tsv"


def submit(described: str, name: str, test: str, predictions: str, folder: str) -> None:
    """Write the submission for a test set, as the benchmark's site takes it.

    Args:
        described: task.yaml of a prepared task.
        test: test/NAME.tsv of the prepared task.
        predictions: what ``fairseq-posenc predict`` wrote for it.
    """
    (task,) = read_table(described).values()
    if name not in task.test:
        raise UsageError(
            f"{described}: has no test set {name}, but {', '.join(task.test) or 'none'}"
        )
    with write_text(f"{folder}/{name}.{suffix_of(task, name)}") as stream:
        for line in lines(task, name, test, predictions):
            stream.write(line + "\n")
