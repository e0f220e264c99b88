"""Turns the logits of a span head into answers, and computes the loss of the head.

BERT, Devlin et al., arXiv 1810.04805, section 4.2; RoBERTa, Liu et al., arXiv 1907.11692,
section 5.2.
"""

import math
from typing import Dict, Iterable, List, NamedTuple, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.packs.comprehension.data import Passage

#: How to predict that a question has no answer: never, by the span [CLS], or by a classifier.
ANSWERABILITY = ("none", "span", "classifier")


def span_logits(logits: Tensor, passage: Tensor, classified: bool) -> Tuple[Tensor, Tensor]:
    """Logits of the first and of the last token of the answer.

    Args:
        logits: output of the span head, (B, T, 2), or (B, T, 3) with a classifier.
        passage: (B, 2) the first position of the passage, and the position after its last one.
        classified: whether a classifier predicts that there is no answer; if not, the span [CLS] at
            position 0 stands for no answer.

    Returns:
        two tensors (B, T), float32, -inf where an answer cannot begin or end.
    """
    positions = torch.arange(logits.shape[1], device=logits.device)
    allowed = (positions >= passage[:, :1]) & (positions < passage[:, 1:])
    if not classified:
        allowed = allowed | (positions == 0)
    masked = logits[:, :, :2].float().masked_fill(~allowed[:, :, None], -math.inf)
    return masked[:, :, 0], masked[:, :, 1]


def span_loss(logits: Tensor, passage: Tensor, target: Tensor, classified: bool) -> Tensor:
    """The loss of each window.

    It is the mean of the cross entropies of the first and the last token of the answer, or of
    [CLS] if the window has no answer.  With a classifier, which is a logistic regression on [CLS],
    the loss of the classifier is added, and windows without an answer have no span loss.

    *target* (B, 2) has the positions of the first and the last token, 0 where there is no answer;
    other arguments are those of :func:`span_logits`.

    Returns:
        (B,), float32.
    """
    start, end = span_logits(logits, passage, classified)
    absent = target[:, 0].eq(0)
    # this loss is set to 0 below for windows without an answer, so any allowed position will do
    places = torch.where(absent[:, None], passage[:, :1], target) if classified else target
    loss = 0.5 * (
        F.cross_entropy(start, places[:, 0], reduction="none")
        + F.cross_entropy(end, places[:, 1], reduction="none")
    )
    if not classified:
        return loss
    verdict = F.binary_cross_entropy_with_logits(
        logits[:, 0, 2].float(), absent.float(), reduction="none"
    )
    return loss.masked_fill(absent, 0.0) + verdict


def best_spans(
    logits: Tensor, passage: Tensor, own: Tensor, longest: int, count: int, classified: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The spans with the highest sums of start and end logit, and the scores for no answer.

    Args:
        logits: (B, T, 2), or with a classifier (B, T, 3).
        passage: (B, 2), as for :func:`span_logits`.
        own: (B, 2) range of the positions where an answer may begin; overlapping windows cover
            the other positions.
        longest: largest number of tokens in an answer.
        count: K, the largest number of spans.

    Returns:
        start and end positions (B, K); scores (B, K), -inf where there are fewer than K spans; and
        the scores for no answer (B,).
    """
    start, end = span_logits(logits, passage, classified=True)
    length = start.shape[1]
    positions = torch.arange(length, device=start.device)
    owned = (positions >= own[:, :1]) & (positions < own[:, 1:])
    start = start.masked_fill(~owned, -math.inf)
    longest = min(longest, length)
    # (B, T, longest): the end logits of the spans that begin at each position
    ends = F.pad(end, (0, longest - 1), value=-math.inf).unfold(1, longest, 1)
    sums = (start[:, :, None] + ends).flatten(1)
    scores, places = sums.topk(min(count, sums.shape[1]), dim=1)
    first = torch.div(places, longest, rounding_mode="floor")
    null = logits[:, 0, 2].float() if classified else logits[:, 0, :2].float().sum(dim=1)
    return first, first + places % longest, scores, null


class Candidate(NamedTuple):
    """A candidate answer from one window."""

    start: int  # index of its first token in the passage
    end: int  # index of its last token
    score: float  # sum of the logits of its start and its end
    null: float  # the window's score for no answer


class Answer(NamedTuple):
    """A possible answer."""

    text: str  # the answer in the words of the passage
    score: float  # sum of its start and end logit
    start: int  # index of its first character in the passage


def no_answer_probability(null_difference: float) -> float:
    """The sigmoid of a null score difference, as the probability of no answer.

    >>> no_answer_probability(0.0)
    0.5
    """
    return 1 / (1 + math.exp(-max(min(null_difference, 700.0), -700.0)))


class Answered(NamedTuple):
    """The prediction of a model for a question."""

    best: List[Answer]  # the possible answers, best first, each text once
    # a classifier's score for no answer; without a classifier, the score for no answer minus
    # the score of the best span, the null score difference of BERT and SQuAD 2.0
    null_difference: float

    def text(self, threshold: float) -> str:
        """The answer, empty if the null score difference is above *threshold*."""
        return "" if self.null_difference > threshold else self.best[0].text

    @property
    def no_answer_probability(self) -> float:
        """The probability of no answer."""
        return no_answer_probability(self.null_difference)


def answered(
    candidates: Iterable[Candidate], passage: Passage, n_best: int, classified: bool = False
) -> Answered:
    """The best answers over all windows of a question.

    A question has no answer only if none of its windows has one.  So the no-answer score of the
    question is the lowest no-answer score of its windows.  The score of a classifier is not
    compared with the score of a span (RoBERTa, arXiv 1907.11692, section 5.2).
    """
    ranked = sorted(candidates, key=lambda c: (-c.score, c.start, c.end))
    best: Dict[str, Answer] = {}
    for candidate in ranked:
        start, end = passage.offsets[candidate.start][0], passage.offsets[candidate.end][1]
        answer = Answer(passage.text[start:end], candidate.score, start)
        if answer.text.strip() and answer.text not in best:
            best[answer.text] = answer
        if len(best) == n_best:
            break
    answers = list(best.values()) or [Answer("", -math.inf, 0)]
    null = min(candidate.null for candidate in ranked)
    return Answered(answers, null if classified else null - ranked[0].score)
