"""Paired tests of two systems on the sentences of a test set, for one seed at a time.

The tests say whether a difference would hold on other sentences, but not with other seeds.
"""

import logging
import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
from runs import Measure, Run, Study, lines
from sacrebleu import metrics
from sacrebleu.significance import PairedTest
from seeds import LEVEL
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

RESAMPLES = 1000  # for the bootstrap and for approximate randomisation
_TESTS = {"bootstrap": "bs", "randomisation": "ar"}  # the values are sacreBLEU's names
TRANSLATION = ("bleu", "chrf", "ter")

PValues = Dict[str, Dict[str, float]]  # keyed by test, then by system


class Untestable(ValueError):
    """A score has no test, or its test cannot be computed here; the argument says why."""


def metric(name: str, signature: str) -> Any:
    """sacreBLEU's metric with the settings of a signature that ``collect.py`` wrote."""
    fields = dict(re.findall(r"([^|:]+):([^|]*)", signature))
    if name == "chrf":
        return metrics.CHRF()
    if name == "ter":
        return metrics.TER(fields.get("norm") == "yes", asian_support=fields.get("asian") == "yes")
    wanted = fields.get("tok", "13a")
    # some tokenizers append versions to their names: ja-mecab-0.996-IPA
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
        baseline: hypotheses of the system with which the others are compared.
        others: the hypotheses of the other systems, keyed by system.
    """
    # sacreBLEU would find a difference between systems with equal outputs, so leave these out
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


def compare_accuracies(first: Sequence[str], second: Sequence[str], labels: Sequence[str]) -> float:
    """p-value of McNemar's exact test (1947) on the answers of two systems."""
    correct = [np.array(side) == np.array(labels) for side in (first, second)]
    counts = [[np.sum((correct[0] == a) & (correct[1] == b)) for b in (1, 0)] for a in (1, 0)]
    return float(mcnemar(counts, exact=True).pvalue)


def in_words(outcomes: Sequence[int]) -> str:
    """In words: in how many seeds a system was better (1) or worse (-1) than the baseline."""
    told = [("better", outcomes.count(1)), ("worse", outcomes.count(-1))]
    return ", ".join(f"{word} {count}/{len(outcomes)}" for word, count in told if count) or "none"


def sentence_tests(study: Study, measure: Measure) -> Tuple[Dict[str, Dict[str, str]], List[str]]:
    """Compare each system with the baseline, seed by seed.

    Returns:
        the outcomes in words, keyed by test and system (none for measures without sentences), and
        the reasons for tests that are left out.
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
    """For each seed, the baseline's run and the runs of the other systems."""
    scored = [run for run in study.done if np.isfinite(run["scores"].get(measure.name, np.nan))]
    for base in scored:
        if base["system"] == study.baseline:
            others = [run for run in scored if run["seed"] == base["seed"] and run is not base]
            yield base, others


def _translations(measure: str, base: Run, others: List[Run], reasons: Dict[str, None]) -> PValues:
    kind, bar, subset = measure.partition("_")  # bleu_test1 is of the test set test1
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
    task, _, kind = measure.rpartition("_")
    labels, first = _columns(base, task)
    if not labels or kind != "accuracy":
        return {}
    found = {}
    for run in others:
        theirs, second = _columns(run, task)
        if theirs == labels:
            found[run["system"]] = compare_accuracies(first, second, labels)
        else:
            reasons[f"{run['system']} and the baseline answered different examples"] = None
    return {"McNemar": found} if found else {}


def _columns(run: Run, task: str) -> Tuple[List[str], List[str]]:
    pairs = [line.partition("\t") for line in lines(run, "answers", task)]
    return [label for label, _, _ in pairs], [answer for _, _, answer in pairs]
