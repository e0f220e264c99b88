"""Paired tests of two systems on the sentences of a test set, for one seed at a time.

They say whether a difference would hold on other sentences, not whether it would with other seeds.
"""

import logging
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
from runs import Measure, Run, Study, lines
from sacrebleu import metrics
from sacrebleu.significance import PairedTest
from scipy import stats
from seeds import LEVEL
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

RESAMPLES = 1000  # of the bootstrap, and random permutations
_SEED = 12345
_TESTS = {"bootstrap": "bs", "randomisation": "ar"}  # with sacreBLEU's names
TRANSLATION = ("bleu", "chrf", "ter")

PValues = Dict[str, Dict[str, float]]  # by test, then by system


class Untestable(ValueError):
    """A score has no test, or it cannot be computed here; the argument says why."""


def metric(name: str, signature: str) -> Any:
    """sacreBLEU's metric with the settings of a signature, as ``collect.py`` makes them."""
    fields = dict(re.findall(r"([^|:]+):([^|]*)", signature))
    if name == "chrf":
        return metrics.CHRF()
    if name == "ter":
        return metrics.TER(fields.get("norm") == "yes", asian_support=fields.get("asian") == "yes")
    wanted = fields.get("tok", "13a")
    # some tokenizers add their version to their name: ja-mecab-0.996-IPA
    known = [one for one in metrics.BLEU.TOKENIZERS if f"{wanted}-".startswith(f"{one}-")]
    try:
        return metrics.BLEU(tokenize=max(known, key=len))
    except (ValueError, ImportError, OSError, RuntimeError) as error:
        raise Untestable(f"the tokenizer {wanted} cannot be used here ({error})") from None


def compare_translations(
    scorer: Any,
    references: Sequence[str],
    baseline: Sequence[str],
    others: Mapping[str, Sequence[str]],
) -> PValues:
    """Paired bootstrap (Koehn 2004) and approximate randomisation (Riezler and Maxwell 2005).

    Args:
        scorer: from :func:`metric`.
        references: one for each sentence.
        baseline: hypotheses of the system that the others are compared with.
        others: hypotheses by system.
    """
    # by sacreBLEU's definition, a system would differ from one with the same output
    found: PValues = {test: {} for test in _TESTS}
    different = {name: one for name, one in others.items() if list(one) != list(baseline)}
    systems: Any = [("", list(baseline)), *((name, list(one)) for name, one in different.items())]
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    for test, kind in _TESTS.items():
        p_values = dict.fromkeys(others, 1.0)
        if different:
            run = PairedTest(systems, {"": scorer}, [list(references)], kind, RESAMPLES)
            table: Any = run()[1]
            (results,) = [column for key, column in table.items() if key != "System"]
            p_values.update({n: float(one.p_value) for n, one in zip(different, results[1:])})
        found[test] = p_values
    return found


def correlation(answers: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation; Matthews's of 0 and 1; 0 if constant."""
    if min(np.ptp(answers), np.ptp(labels)) == 0:
        return 0.0
    return float(np.corrcoef(answers, labels)[0, 1])


def rank_correlation(answers: np.ndarray, labels: np.ndarray) -> float:
    """Spearman correlation; 0 if constant."""
    return correlation(stats.rankdata(answers), stats.rankdata(labels))


def f1_score(answers: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1 (the others are 0)."""
    return float(2 * (answers * labels).sum() / max(answers.sum() + labels.sum(), 1))


#: Scores that are no means over sentences, by the end of the name of the measure.
SCORES = {
    "mcc": correlation,
    "pearson": correlation,
    "spearman": rank_correlation,
    "f1": f1_score,
}


def compare_answers(
    kind: str,
    first: Sequence[str],
    second: Sequence[str],
    labels: Sequence[str],
    positive: str = "",
) -> Tuple[str, float]:
    """The test that suits a score of answers, and its p-value.

    Args:
        kind: ``accuracy`` or a key of :data:`SCORES`.
        labels: the right answers.
        positive: the class whose F1 is the score; read for F1 alone.

    Raises:
        Untestable: Matthews's correlation of more than two classes, F1 without a positive one, or
            answers of a regression that are no numbers.
    """
    if kind == "accuracy":
        correct = [np.array(side) == np.array(labels) for side in (first, second)]
        counts = [[np.sum((correct[0] == a) & (correct[1] == b)) for b in (1, 0)] for a in (1, 0)]
        return "McNemar", float(mcnemar(counts, exact=True).pvalue)
    sides = first, second, labels
    classes = sorted({label for side in sides for label in side})
    if kind == "mcc" and len(classes) > 2:
        raise Untestable(f"the test is for two classes, and there are {len(classes)} classes")
    if kind == "f1" and not positive:
        raise Untestable("the commands of the runs do not name the positive class")
    number: Dict[str, Callable[[str], float]] = {
        "mcc": lambda label: float(classes.index(label)),
        "f1": lambda label: float(label == positive),
    }
    try:
        numbers = [np.array(list(map(number.get(kind, float), side))) for side in sides]
    except ValueError as error:
        raise Untestable(f"an answer is no number ({error})") from None
    if not all(np.isfinite(side).all() for side in numbers):
        raise Untestable("an answer is not a finite number")
    score, right = SCORES[kind], numbers[2]
    found = stats.permutation_test(
        (numbers[0], numbers[1]),
        lambda a, b: score(a, right) - score(b, right),
        permutation_type="samples",  # the answers of both systems swap at random
        n_resamples=RESAMPLES,
        random_state=_SEED,
    )
    return "permutation", float(found.pvalue)


def in_words(outcomes: Sequence[int]) -> str:
    """In how many seeds a system was significantly better (1) or worse (-1) than the baseline."""
    told = [("better", outcomes.count(1)), ("worse", outcomes.count(-1))]
    said = ", ".join(f"{word} in {count}" for word, count in told if count)
    return f"{said or 'in none'} of {len(outcomes)}"


def sentence_tests(study: Study, measure: Measure) -> Tuple[Dict[str, Dict[str, str]], List[str]]:
    """Compare each system with the baseline, seed by seed.

    Returns:
        the outcomes in words by test and system, nothing for a measure without answers; and the
        reasons why tests are left out.
    """
    sign = 1 if measure.better == "higher" else -1
    reasons: Dict[str, None] = {}
    outcomes: Dict[str, Dict[str, List[int]]] = {}
    for base, others in _by_seed(study, measure):
        is_translation = measure.name.partition("_")[0] in TRANSLATION
        made = (_translations if is_translation else _answers)(measure.name, base, others, reasons)
        scored = {run["system"]: run["scores"][measure.name] for run in others}
        for test, p_values in made.items():
            adjusted = multipletests(list(p_values.values()), method="holm")[1]
            for system, p in zip(p_values, adjusted):
                higher = scored[system] - base["scores"][measure.name]
                outcome = 0 if p >= LEVEL or not higher else (1 if sign * higher > 0 else -1)
                outcomes.setdefault(test, {}).setdefault(system, []).append(outcome)
    told = {
        test: {system: in_words(one) for system, one in by_system.items()}
        for test, by_system in outcomes.items()
    }
    return told, list(reasons)


def _by_seed(study: Study, measure: Measure) -> Iterator[Tuple[Run, List[Run]]]:
    """The run of the baseline and those of the others, for each seed."""
    scored = [run for run in study.done if np.isfinite(run["scores"].get(measure.name, np.nan))]
    for base in scored:
        if base["system"] == study.baseline:
            others = [run for run in scored if run["seed"] == base["seed"] and run is not base]
            yield base, others


def _translations(measure: str, base: Run, others: List[Run], reasons: Dict[str, None]) -> PValues:
    kind, bar, subset = measure.partition("_")  # bleu_test1: of a further test set
    names = [f"{name}{bar}{subset}" for name in ("references", "hypotheses")]
    references, hypotheses = (lines(base, name) for name in names)
    same = {
        run["system"]: lines(run, names[1]) for run in others if lines(run, names[0]) == references
    }
    same = {name: one for name, one in same.items() if len(one) == len(references)}
    if not same or not references or len(hypotheses) != len(references):
        return {}
    try:
        scorer = metric(kind, base["signatures"].get(measure, ""))
    except Untestable as error:
        reasons[str(error)] = None
        return {}
    return compare_translations(scorer, references, hypotheses, same)


def _answers(measure: str, base: Run, others: List[Run], reasons: Dict[str, None]) -> PValues:
    tasks = sorted(base["files"].get("answers", {}), key=len, reverse=True)
    task = next((one for one in tasks if measure.startswith(f"{one}_")), "")
    kind = measure[len(task) + 1 :]
    if not task or kind not in ("accuracy", *SCORES):
        return {}
    labels, first = _columns(base, task)
    found: PValues = {}
    for run in others:
        theirs, second = _columns(run, task)
        if theirs != labels:
            reasons[f"the answers of {run['system']} are not to the baseline's examples"] = None
            continue
        try:
            positive = positive_class(base["commands"], task)
            test, p = compare_answers(kind, first, second, labels, positive)
        except Untestable as error:
            reasons[str(error)] = None
            continue
        found.setdefault(test, {})[run["system"]] = p
    return found


def _columns(run: Run, task: str) -> Tuple[List[str], List[str]]:
    pairs = [line.partition("\t") for line in lines(run, "answers", task)]
    return [label for label, _, _ in pairs], [answer for _, _, answer in pairs]


def positive_class(commands: Sequence[str], task: str) -> str:
    """The class whose F1 a task reports, from the commands of a run; empty if they do not say."""
    tuned = [one for one in commands if re.search(rf"[/-]{re.escape(task)}-lr", one)]
    found = (re.search(r"--positive-label[ =](\S+)", one) for one in tuned)
    return next((one.group(1) for one in found if one), "")
