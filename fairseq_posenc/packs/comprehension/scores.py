"""Scores answers by the rules of the scripts that were published with the data sets.

SQuAD 1.1, Rajpurkar et al., arXiv 1606.05250; SQuAD 2.0, Rajpurkar et al., arXiv 1806.03822;
CMRC 2018, Cui et al., arXiv 1810.07366.
"""

import difflib
import math
import re
import string
from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Signs that CMRC's script removes from answers.
CMRC_SIGNS = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
_CMRC_PARTS = re.compile(f"[\u4e00-\u9fa5]|[^\\W\u4e00-\u9fa5]+|[^\\w\\s{re.escape(CMRC_SIGNS)}]")


def normalised(text: str) -> str:
    """Normalise as SQuAD's script does: lower case, no punctuation or articles, single spaces.

    >>> normalised("The  U.S. Army's")
    'us armys'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def _shared_words(one: Sequence[str], other: Sequence[str]) -> int:
    return sum((Counter(one) & Counter(other)).values())


def _without_signs(text: str) -> str:
    return "".join(letter for letter in text.lower().strip() if letter not in CMRC_SIGNS)


def _cmrc_parts(text: str) -> List[str]:
    """Split into Chinese characters, words of other scripts, and signs that CMRC's script keeps."""
    return [p for p in _CMRC_PARTS.findall(text.lower()) if p not in CMRC_SIGNS]


def _longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest contiguous run of parts that both sequences contain."""
    matcher = difflib.SequenceMatcher(None, one, other, False)
    return matcher.find_longest_match(0, len(one), 0, len(other)).size


class Rules(NamedTuple):
    """The rules of a data set for scoring a prediction against one correct answer."""

    form: Callable[[str], str]  # normalises an answer for the exact match
    parts: Callable[[str], List[str]]  # splits an answer into the parts that F1 counts
    common: Callable[[Sequence[str], Sequence[str]], int]  # counts the parts that answers share

    def exact(self, prediction: str, answer: str) -> float:
        """1 if both normalised texts are equal, else 0."""
        return float(self.form(prediction) == self.form(answer))

    def f1(self, prediction: str, answer: str) -> float:
        """F1 of the shared parts; 1 for two texts without parts, 0 for others that share no part.

        >>> RULES["squad"].f1("the old cat", "a cat")
        0.6666666666666666
        >>> RULES["cmrc"].f1("1998年5月", "5月，1998年")
        0.5
        """
        said, right = self.parts(prediction), self.parts(answer)
        common = self.common(said, right)
        if not common:
            return float(said == right)
        precision, recall = common / len(said), common / len(right)
        return 2 * precision * recall / (precision + recall)


RULES: Dict[str, Rules] = {
    "squad": Rules(normalised, lambda text: normalised(text).split(), _shared_words),
    "cmrc": Rules(_without_signs, _cmrc_parts, _longest_run),
}


class Scored(NamedTuple):
    """The scores of one prediction, each the best over all correct answers."""

    exact: float  # from 0 to 1
    f1: float  # from 0 to 1
    answerable: bool  # whether the question has an answer
    answered: bool  # whether the prediction has text, be it only articles and signs

    def without_answer(self) -> "Scored":
        """The scores if the model predicts that there is no answer."""
        right = float(not self.answerable)
        return Scored(right, right, self.answerable, False)


def scored(prediction: str, answers: Sequence[str], rules: Rules) -> Scored:
    """The scores of a *prediction*, which is empty if the model predicts no answer.

    *answers* are the correct answers, empty if the question has none.
    """
    # a correct answer of articles and signs alone is ignored, as in SQuAD's script
    kept = [answer for answer in answers if rules.parts(answer)] or [""]
    return Scored(
        max(rules.exact(prediction, answer) for answer in kept),
        max(rules.f1(prediction, answer) for answer in kept),
        bool(answers),
        bool(prediction),
    )


def percentages(each: Sequence[Scored]) -> Dict[str, float]:
    """Mean scores in percent; also for questions with and without an answer, if both exist.

    >>> percentages([Scored(1, 1, True, True), Scored(0, 0.5, True, True)])
    {'exact': 50.0, 'f1': 75.0, 'total': 2}
    """
    groups = {"": each}
    if len({entry.answerable for entry in each}) == 2:
        groups["HasAns_"] = [entry for entry in each if entry.answerable]
        groups["NoAns_"] = [entry for entry in each if not entry.answerable]
    means: Dict[str, float] = {}
    for prefix, group in groups.items():
        for name in ("exact", "f1"):
            total = sum(getattr(entry, name) for entry in group)
            means[prefix + name] = 100 * total / max(len(group), 1)
        means[prefix + "total"] = len(group)
    return means


class Threshold(NamedTuple):
    """A threshold for the no-answer score, and the resulting exact match or F1."""

    score: float  # exact match or F1 over all questions, in percent
    threshold: float  # predictions with a higher no-answer score count as empty


def best_threshold(each: Sequence[Scored], no_answer: Sequence[float], name: str) -> Threshold:
    """The threshold that gives the best score *name*, as SQuAD 2.0's script searches for it.

    *each* are the scores if every question is answered; *no_answer* are the no-answer scores.
    """
    order = sorted(range(len(each)), key=lambda number: no_answer[number])
    best = current = float(sum(not entry.answerable for entry in each))
    threshold = 0.0
    for number in order:
        entry = each[number]
        # A question without an answer loses its point if there is a prediction.  In SQuAD's script
        # this holds even if the prediction is only articles, whose normalised text would score 1.
        current += getattr(entry, name) if entry.answerable else -float(entry.answered)
        if current > best:
            best, threshold = current, no_answer[number]
    return Threshold(100 * best / max(len(each), 1), threshold)


def scores(
    predictions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    rules: Rules,
    no_answer: Optional[Mapping[str, float]] = None,
    threshold: float = 1.0,
) -> Dict[str, float]:
    """The scores of predictions, in percent; a question without a prediction counts as wrong.

    Predictions whose *no_answer* score is above *threshold* count as empty.  With *no_answer*, the
    result includes the best thresholds.  The keys of all mappings are ids of questions.
    """
    each = [
        scored(predictions[key], right, rules)
        if key in predictions
        else Scored(0, 0, bool(right), False)
        for key, right in answers.items()
    ]
    if no_answer is None:
        return percentages(each)
    odds = [no_answer.get(key, 0.0) for key in answers]
    kept = [e.without_answer() if odd > threshold else e for e, odd in zip(each, odds)]
    result = percentages(kept)
    for name in ("exact", "f1"):
        best = best_threshold(each, odds, name)
        result[f"best_{name}"], result[f"best_{name}_thresh"] = best
    return result


def check_values(
    path: str, values: Mapping[str, Any], known: Mapping[str, Any], questions: str, numbers: bool
) -> None:
    """Refuse unknown ids, and values that are not texts or, if *numbers* is True, finite numbers.

    *path* is the file of the *values*, *questions* is the file of the *known* ids.
    """
    kinds = (int, float) if numbers else (str,)
    for key, value in values.items():
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        if key not in known or not fits or (numbers and not abs(value) < math.inf):
            why = "is no valid value" if key in known else f"has an id that is not in {questions}"
            raise UsageError(
                f"{path}: {key}: {value!r} {why}; map question ids to texts (--na-prob: to numbers)"
            )
