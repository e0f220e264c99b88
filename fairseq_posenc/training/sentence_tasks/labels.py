"""The labels of a sentence task: symbols of a dictionary, or numbers."""

import math
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.training.sentence_tasks.settings import label
from fairseq_posenc.training.sentence_tasks.tasks import Task


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


class Labels:
    """Labels as fairseq reads them: symbols of a dictionary.

    Args:
        task: the task.
        path: the training file.
        train: its examples.
    """

    def __init__(self, task: Task, path: str, train: Sequence[Example]) -> None:
        counts: Dict[str, int] = Counter()
        limit = task.labels if isinstance(task.labels, int) else math.inf
        for example in train:
            counts[example.label] += 1
            if len(counts) > limit:
                raise UsageError(
                    f"{path}: line {example.line}: label {example.label!r} is number {len(counts)},"
                    f" and {task.name} has {limit} labels"
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

    def __call__(self, example: Example, path: str) -> str:
        """The line for an example's label."""
        if example.label not in self.names:
            known = ", ".join(self.names[:12])
            raise UsageError(
                f"{path}: line {example.line}: label {example.label!r} is none of the "
                f"{self.source} ({known})"
            )
        try:
            return label(example.label)
        except ValueError as error:
            raise UsageError(f"{path}: line {example.line}: {error}") from error


class Numbers:
    """Numbers: the smallest becomes 0, the largest 1; the arguments are those of ``Labels``."""

    names: Sequence[str] = ()
    counts: Sequence[int] = ()

    def __init__(self, task: Task, path: str, train: Sequence[Example]) -> None:
        self.given = isinstance(task.regression, tuple)
        if isinstance(task.regression, tuple):
            self.bounds = task.regression
        else:
            found = [self._number(example, path) for example in train]
            if min(found) == max(found):
                raise UsageError(
                    f"{path}: all examples have the label {found[0]}; nothing can be learned"
                )
            self.bounds = (min(found), max(found))
        self.found: Dict[str, Any] = {"regression": list(self.bounds)}

    def __call__(self, example: Example, path: str) -> str:
        """The line for an example's label."""
        low, high = self.bounds
        number = self._number(example, path)
        if self.given and not low <= number <= high:
            raise UsageError(
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
            raise UsageError(
                f"{path}: line {example.line}: the label {example.label!r} is not a number"
            )
        return number
