"""Ranking among fewer choices than --num-classes."""

import math
from typing import Any, Callable, Dict, Tuple

from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from torch import Tensor

from fairseq_posenc.compat.patching import wrap


def rank_given_choices() -> None:
    """Leave the choices that a question does not have out of the ranking.

    ``--task sentence_ranking`` has the same number of choices for all questions.  Measured: an
    empty line in the place of a missing choice is scored like the others, and takes part in the
    softmax and in the accuracy.  With this its score is -inf.  A choice is empty if </s> is its
    first token, or with --init-token its second.
    """
    wrap(SentenceRankingCriterion, "forward", _without_empty_choices)


def _without_empty_choices(forward: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        criterion: SentenceRankingCriterion,
        model: Any,
        sample: Dict[str, Any],
        *args: object,
        **kwargs: object,
    ) -> Any:
        task = criterion.task
        settings = getattr(task, "args", None)
        first = int(getattr(settings, "init_token", None) is not None)
        eos = task.source_dictionary.eos()
        return forward(criterion, _Choices(model, first, eos), sample, *args, **kwargs)

    return wrapper


class _Choices:
    """A model whose scores of empty choices are -inf.

    Args:
        model: the model.
        first: the place of the first token of a choice.
        eos: the index of </s>.
    """

    def __init__(self, model: Any, first: int, eos: int) -> None:
        self._model, self._first, self._eos = model, first, eos

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, src_tokens: Tensor, **kwargs: object) -> Tuple[Tensor, Any]:
        scores, extra = self._model(src_tokens=src_tokens, **kwargs)
        empty = src_tokens[:, self._first].eq(self._eos)
        return scores.masked_fill(empty[:, None], -math.inf), extra
