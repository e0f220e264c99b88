"""Lets questions of ``--task sentence_ranking`` differ in their number of choices (C3, CHID)."""

import math
import os
from typing import Any, Callable, Tuple

from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from fairseq.tasks.sentence_ranking import SentenceRankingTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.flags.options import option
from fairseq_posenc.training.masked_lm import Recorded


def leave_out_empty_choices(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a criterion's *forward* so that empty choices do not enter the ranking.

    ``--task sentence_ranking`` has the same number of choices for all questions; an empty line
    stands for a missing choice.  Measured: fairseq scores this line like a choice, in the softmax
    and in the accuracy.  The wrapper sets its score to -inf.  A choice is empty if its first token
    (with --init-token its second) is </s>.
    """

    def wrapper(
        criterion: SentenceRankingCriterion, model: Any, *args: object, **kwargs: object
    ) -> Any:
        return forward(criterion, _Choices(model, criterion.task), *args, **kwargs)

    return wrapper


class _Choices(Recorded):
    """A model whose scores of empty choices are -inf."""

    def __init__(self, model: Any, task: SentenceRankingTask) -> None:
        super().__init__(model)
        self.first = int(option(task_settings(task), "init_token") is not None)
        self.eos = task.source_dictionary.eos()

    def __call__(self, **inputs: Any) -> Tuple[Tensor, Any]:
        scores, extra = super().__call__(**inputs)
        empty = inputs["src_tokens"][:, self.first].eq(self.eos)
        return scores.masked_fill(empty[:, None], -math.inf), extra


def check_choices(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *load* to refuse a number of choices other than --num-classes, and wrong labels.

    Measured: fairseq fails with a traceback if --num-classes is too large, and ignores the last
    choices if --num-classes is too small.
    """

    def wrapper(task: SentenceRankingTask, split: str, *args: Any, **kwargs: Any) -> Any:
        data, classes = task.args.data, task.args.num_classes
        choices = 0
        while os.path.isfile(os.path.join(data, f"input{choices + 1}", f"{split}.idx")):
            choices += 1
        if choices and choices != classes:
            raise UsageError(
                f"--num-classes {classes}: the questions in {data} ({split}) have {choices} "
                f"choices; give --num-classes {choices}"
            )
        _check_labels(os.path.join(data, "label", f"{split}.label"), classes)
        return load(task, split, *args, **kwargs)

    return wrapper


def _check_labels(path: str, choices: int) -> None:
    if not os.path.isfile(path):
        return
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            label = line.strip()
            if not (label.isdecimal() and int(label) < choices):
                raise UsageError(
                    f"{path}: line {number}: {label!r} is none of the {choices} choices; expected "
                    f"a number from 0 to {choices - 1}"
                )
