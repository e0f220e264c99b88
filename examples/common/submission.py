"""The file of a test set for a benchmark's site, from the predictions of `fairseq-posenc predict`.

    python submission.py TASK.yaml NAME TEST.tsv PREDICTIONS FOLDER

TASK.yaml and TEST.tsv are what prepare.sh left in the folder of a task (task.yaml, test/NAME.tsv).
Where the test set was TSV, FOLDER/NAME.tsv has a line with `index` and `prediction`, then those of
every example, as GLUE asks for. Where it was JSON, FOLDER/NAME.json (or .jsonl, as the test
set) has an object with `id` and `label` for each, as CLUE does; `id` is named as in the test set,
so `idx` in SuperGLUE. A number is kept within the range of the labels.
"""

import argparse
import json
from typing import Iterator, Optional, Sequence

from tasks import Task, read_table
from text import atomic_writer, fail, read_pairs


def lines(task: Task, name: str, test: str, predictions: str) -> Iterator[str]:
    """The lines of a submission.

    Args:
        task: the task, as prepared.
        name: of the test set.
        test: its file, with the examples' numbers in the first column.
        predictions: for each, a label and its probability, or a number.
    """
    as_json, key = suffix_of(task, name) != "tsv", json.dumps(task.id or "id")
    if not as_json:
        yield "index\tprediction"
    for number, (row, answer) in enumerate(read_pairs(test, predictions), 1):
        index, label = row.split("\t")[0], answer.split("\t")[0]
        if not label:
            fail(f"{test}: line {number} is empty, so there is no prediction for {index}")
        if task.regression:
            label = f"{within(float(label), task):.3f}"
        elif label not in (task.labels or ()):
            fail(f"{predictions}: line {number}: {label} is no label of {task.name}")
        # in JSON, the number is as it stood there
        text = json.dumps(label, ensure_ascii=False)
        yield f'{{{key}: {index}, "label": {text}}}' if as_json else f"{index}\t{label}"


def within(number: float, task: Task) -> float:
    """The nearest number in the range of a task's labels."""
    low, high = task.regression
    return min(max(number, low), high)


def suffix_of(task: Task, name: str) -> str:
    """The ending of the submission for a test set: that of its file if it is JSON, else tsv."""
    ending = task.test[name][0].rpartition(".")[2]
    return ending if ending in ("json", "jsonl") else "tsv"


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for argument in ("task", "name", "test", "predictions", "folder"):
        parser.add_argument(argument)
    args = parser.parse_args(argv)
    (task,) = read_table(args.task).values()
    if args.name not in task.test:
        fail(f"{args.task}: has no test set {args.name}, but {', '.join(task.test) or 'none'}")
    suffix = suffix_of(task, args.name)
    with atomic_writer(f"{args.folder}/{args.name}.{suffix}") as stream:
        for line in lines(task, args.name, args.test, args.predictions):
            stream.write(line + "\n")


if __name__ == "__main__":
    main()
