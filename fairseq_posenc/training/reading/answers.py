"""From the spans that a model scores in each window to the answer of a question."""

import math
from typing import Dict, Iterable, List, NamedTuple, Sequence

from fairseq_posenc.training.reading.alignment import Span


class Candidate(NamedTuple):
    """A span that a window proposes.

    Args:
        start: its first token in the passage.
        end: its last token.
        score: sum of the logits of its start and its end.
        null: the window's score for no answer.
    """

    start: int
    end: int
    score: float
    null: float


class Answer(NamedTuple):
    """A possible answer.

    Args:
        text: the answer in the words of the passage.
        score: sum of two logits.
        start: its first character in the passage.
    """

    text: str
    score: float
    start: int


class Answered(NamedTuple):
    """What the model says to a question.

    Args:
        best: the possible answers, best first, each text once.
        null_difference: the score for no answer less that of the best answer, as in the null
            score difference of BERT and SQuAD 2.0.
    """

    best: List[Answer]
    null_difference: float

    def text(self, threshold: float) -> str:
        """The answer, empty if the null score difference is above *threshold*."""
        return "" if self.null_difference > threshold else self.best[0].text

    @property
    def no_answer_probability(self) -> float:
        """The null score difference as a probability."""
        bounded = max(min(self.null_difference, 700.0), -700.0)
        return 1 / (1 + math.exp(-bounded))


def answered(
    candidates: Iterable[Candidate],
    text: str,
    offsets: Sequence[Span],
    n_best: int,
    classified: bool = False,
) -> Answered:
    """The best answers over all windows of a question.

    A question has no answer if no window has one: its score for no answer is the lowest of its
    windows'.

    Args:
        candidates: the candidates of all windows, at least one.
        text: the passage.
        offsets: the characters of its tokens.
        n_best: largest number of answers.
        classified: the score for no answer is that of a classifier, and is not compared with that
            of a span (RoBERTa, arXiv 1907.11692, section 5.2).
    """
    ranked = sorted(candidates, key=lambda c: (-c.score, c.start, c.end))
    best: Dict[str, Answer] = {}
    for candidate in ranked:
        start, end = offsets[candidate.start][0], offsets[candidate.end][1]
        answer = Answer(text[start:end], candidate.score, start)
        if answer.text.strip() and answer.text not in best:
            best[answer.text] = answer
        if len(best) == n_best:
            break
    found = list(best.values()) or [Answer("", -math.inf, 0)]
    null = min(candidate.null for candidate in ranked)
    return Answered(found, null if classified else null - ranked[0].score)
