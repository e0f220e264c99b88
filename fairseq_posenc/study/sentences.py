"""Paired tests of two systems on the sentences of a test set, for one seed at a time.

They say whether a difference would hold on other sentences, not whether it would with other seeds.
"""

import contextlib
import logging
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.basics.packages import import_extra

#: Number of bootstrap resamples, and of random permutations.
RESAMPLES = 1000
_SEED = 12345
#: Names of the tests of translations, with sacreBLEU's names.
_TESTS = {"bootstrap": "bs", "randomisation": "ar"}


class Untestable(ValueError):
    """A score has no test, or the test cannot be computed here; the argument says why."""


def _bleu(fields: Mapping[str, str], references: List[List[str]]) -> Any:
    bleu = import_extra("sacrebleu", "study --report").metrics.BLEU
    lower, tokenizer = fields.get("case") == "lc", fields.get("tok", "13a")
    # some tokenizers add their version to their name: ja-mecab-0.996-IPA
    known = (name for name in bleu.TOKENIZERS if f"{tokenizer}-".startswith(f"{name}-"))
    name = max(known, key=len, default="")
    if not name:
        raise Untestable(f"this version of sacreBLEU has no tokenizer {tokenizer}")
    try:
        return bleu(lowercase=lower, tokenize=name, references=references)
    except (ImportError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise Untestable(f"the tokenizer {tokenizer} cannot be used here: {reason}") from error


def _chrf(fields: Mapping[str, str], references: List[List[str]]) -> Any:
    metrics = import_extra("sacrebleu", "study --report").metrics
    return metrics.CHRF(
        lowercase=fields.get("case") == "lc",
        char_order=int(fields.get("nc", 6)),
        word_order=int(fields.get("nw", 0)),
        whitespace=fields.get("space") == "yes",
        references=references,
    )


def _ter(fields: Mapping[str, str], references: List[List[str]]) -> Any:
    metrics = import_extra("sacrebleu", "study --report").metrics
    return metrics.TER(
        case_sensitive=fields.get("case") == "mixed",
        normalized=fields.get("norm") == "yes",
        no_punct=fields.get("punct") == "no",
        asian_support=fields.get("asian") == "yes",
        references=references,
    )


#: Measures of translations, by name.
TRANSLATION_METRICS: Dict[str, Callable[[Mapping[str, str], List[List[str]]], Any]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "ter": _ter,
}


def metric(name: str, signature: str, references: Sequence[str]) -> Any:
    """sacreBLEU's metric with the settings of a signature.

    Args:
        name: one of :data:`TRANSLATION_METRICS`.
        signature: a signature such as ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp``; an empty
            one stands for the defaults.
        references: one for each sentence.

    Raises:
        Untestable: the tokenizer of BLEU is not there.
    """
    fields = dict(re.findall(r"([^|:]+):([^|]*)", signature))
    return _extracting_once(TRANSLATION_METRICS[name](fields, [list(references)]))


def _extracting_once(scorer: Any) -> Any:
    """Keep the statistics of sentences, since computing them takes longer than the tests."""
    extract = getattr(scorer, "_extract_corpus_statistics", None)
    if extract is None:  # another version of sacreBLEU: slower, but the same
        return scorer
    known: Dict[Tuple[str, ...], Any] = {}

    def once(hypotheses: Sequence[str], given: Any) -> Any:
        key = tuple(hypotheses)
        if key not in known:
            known[key] = extract(hypotheses, given)
        return known[key]

    scorer._extract_corpus_statistics = once
    return scorer


def compare_translations(
    measure: Any, baseline: Sequence[str], others: Mapping[str, Sequence[str]]
) -> Dict[str, Dict[str, float]]:
    """Paired bootstrap (Koehn 2004) and approximate randomisation (Riezler and Maxwell 2005).

    Args:
        measure: from :func:`metric`.
        baseline: hypotheses of the system that the others are compared with.
        others: hypotheses by system.

    Returns:
        the p-values of both tests by system.
    """
    # by sacreBLEU's definition, a system would differ from one with the same output
    same = [name for name, lines in others.items() if list(lines) == list(baseline)]
    found = {name: dict.fromkeys(_TESTS, 1.0) if name in same else {} for name in others}
    others = {name: lines for name, lines in others.items() if name not in same}
    significance = import_extra("sacrebleu.significance", "study --report")
    systems = [("", list(baseline)), *((name, list(lines)) for name, lines in others.items())]
    for test, kind in _TESTS.items() if others else ():
        with _quiet():
            _, table = significance.PairedTest(systems, {"": measure}, None, kind, RESAMPLES)()
        (results,) = [column for key, column in table.items() if key != "System"]
        for name, result in zip(others, results[1:]):
            found[name][test] = float(result.p_value)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def mcnemar(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> float:
    """p-value of McNemar's exact test (1947) of two accuracies.

    Args:
        first: answers of one system, (N,).
        second: answers of the other, (N,).
        labels: the right answers, (N,).
    """
    tables = import_extra("statsmodels.stats.contingency_tables", "study --report")
    right = (first == labels), (second == labels)
    counts = [[int(np.sum((right[0] == a) & (right[1] == b))) for b in (1, 0)] for a in (1, 0)]
    return float(tables.mcnemar(counts, exact=True).pvalue)


def permutation(
    first: np.ndarray, second: np.ndarray, labels: np.ndarray, score: "RowScore"
) -> float:
    """p-value of a paired permutation test: the answers of both systems swap at random.

    Args:
        first: answers of one system as numbers, (N,).
        second: answers of the other, (N,).
        labels: the right answers, (N,).
        score: from answers (R, N) and labels (N,) to R scores.
    """
    stats = import_extra("scipy.stats", "study --report")

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        def of(answers: np.ndarray) -> np.ndarray:
            moved = np.moveaxis(np.asarray(answers), axis, -1)
            return score(moved.reshape(-1, moved.shape[-1]), labels).reshape(moved.shape[:-1])

        return np.asarray(of(a) - of(b))

    found = stats.permutation_test(
        (first, second),
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=50,
        random_state=_SEED,
    )
    return float(found.pvalue)


RowScore = Callable[[np.ndarray, np.ndarray], np.ndarray]


def correlations(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Pearson correlation of each row with the labels, (R); Matthews's of 0 and 1; 0 if constant.

    Args:
        answers: (R, N).
        labels: (N,).
    """
    x, y = answers - answers.mean(-1, keepdims=True), labels - labels.mean()
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum())
    return np.divide(x @ y, scale, out=np.zeros(len(x)), where=scale > 0)


def rank_correlations(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Spearman correlation of each row with the labels, (R).

    Args:
        answers: (R, N).
        labels: (N,).
    """
    rank = import_extra("scipy.stats", "study --report").rankdata
    return correlations(rank(answers, axis=-1), rank(labels))


def f1_scores(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """F1 of class 1 in each row, (R).

    Args:
        answers: (R, N).
        labels: (N,).
    """
    both = ((answers == 1) & (labels == 1)).sum(-1)
    return 2 * both / np.maximum((answers == 1).sum(-1) + (labels == 1).sum(), 1)


#: Scores that are no means over sentences, by the end of the name of the measure.
ROW_SCORES: Dict[str, RowScore] = {
    "mcc": correlations,
    "pearson": correlations,
    "spearman": rank_correlations,
    "f1": f1_scores,
}


def compare_answers(
    kind: str,
    first: Sequence[str],
    second: Sequence[str],
    labels: Sequence[str],
    positive: Optional[str] = None,
) -> Tuple[str, float]:
    """The test that suits a score of answers, and its p-value.

    Args:
        kind: ``accuracy`` or a key of :data:`ROW_SCORES`.
        labels: the right answers.
        positive: the class whose F1 is the score; read for F1 alone.

    Raises:
        Untestable: Matthews's correlation of more than two classes, F1 without a positive one, or
            answers of a regression that are not finite numbers.
    """
    sides = first, second, labels
    if kind == "accuracy":
        return "McNemar", mcnemar(*(np.array(side) for side in sides))
    numbers = _NUMBERS[kind](sides, positive)
    return "permutation", permutation(numbers[0], numbers[1], numbers[2], ROW_SCORES[kind])


_Sides = Sequence[Sequence[str]]


def _of_two_classes(sides: _Sides, positive: Optional[str]) -> List[np.ndarray]:
    classes = sorted({label for side in sides for label in side})
    if len(classes) > 2:
        raise Untestable(f"the test is for two classes, and there are {len(classes)} classes")
    return [np.array([float(classes.index(label)) for label in side]) for side in sides]


def _of_positive_class(sides: _Sides, positive: Optional[str]) -> List[np.ndarray]:
    if positive is None:
        raise Untestable("the commands of the runs do not name the positive class")
    return [np.array([float(label == positive) for label in side]) for side in sides]


def _of_regression(sides: _Sides, positive: Optional[str]) -> List[np.ndarray]:
    try:
        numbers = [np.array([float(label) for label in side]) for side in sides]
    except ValueError as error:
        raise Untestable(f"an answer is no number ({error})") from error
    if not all(np.isfinite(side).all() for side in numbers):
        raise Untestable("an answer is not a finite number")
    return numbers


#: From the two systems' answers and the right ones to numbers, by the kind of the score.
_NUMBERS: Dict[str, Callable[[_Sides, Optional[str]], List[np.ndarray]]] = {
    "mcc": _of_two_classes,
    "f1": _of_positive_class,
    "pearson": _of_regression,
    "spearman": _of_regression,
}
