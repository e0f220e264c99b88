"""The file of a test set for a benchmark's site, from the predictions of a command."""

import json
from typing import Iterator

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_pairs, write_text
from fairseq_posenc.training.sentence_tasks.tasks import Task, read_table


def lines(task: Task, name: str, test: str, predictions: str) -> Iterator[str]:
    """The lines of a submission.

    Args:
        task: the task, as prepared.
        name: the name of the test set.
        test: its file, with the examples' numbers in the first column.
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
        name: the name of the test set.
        test: test/NAME.tsv of the prepared task.
        predictions: what ``fairseq-posenc predict`` wrote for it.
        folder: to write to.
    """
    (task,) = read_table(described).values()
    if name not in task.test:
        raise UsageError(
            f"{described}: has no test set {name}, but {', '.join(task.test) or 'none'}"
        )
    with write_text(f"{folder}/{name}.{suffix_of(task, name)}") as stream:
        for line in lines(task, name, test, predictions):
            stream.write(line + "\n")
