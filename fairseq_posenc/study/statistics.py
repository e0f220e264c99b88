"""Differences between systems across seeds: intervals, corrected p-values and letters.

The t-tests of the differences in the additive model of systems and seeds are the paired t-test
where there are two systems; with more, the variance of the error is pooled over all of them,
because two or three seeds alone say little about it.
"""

import warnings
from itertools import combinations
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.additive_model import AdditiveModel, Estimate, Scores, fit

#: Confidence of the intervals; the tests have the remaining error rate.
CONFIDENCE = 0.95
LEVEL = 1 - CONFIDENCE
Interval = Optional[Tuple[float, float]]
Pair = Tuple[str, str]


class Summary(NamedTuple):
    """Scores of one system over its seeds.

    Args:
        mean: their mean.
        sd: their standard deviation (n − 1), None for one seed.
        seeds: their number.
        interval: 95% interval of the mean by Student's t, None for one seed.
    """

    mean: float
    sd: Optional[float]
    seeds: int
    interval: Interval


class Difference(NamedTuple):
    """The mean of a first system minus the mean of a second one.

    Args:
        mean: the difference, adjusted for seeds that only one of the two has.
        interval: its 95% interval, not corrected for the number of systems; None if unknown.
        p: p-value of the test with the pooled variance, None without a test.
        adjusted: *p* after Holm's correction over all pairs of systems.
        alone: p-value of the paired t-test on these two systems only, not corrected.
    """

    mean: float
    interval: Interval = None
    p: Optional[float] = None
    adjusted: Optional[float] = None
    alone: Optional[float] = None

    @property
    def separable(self) -> bool:
        """Whether the difference is significant after the correction."""
        return self.adjusted is not None and self.adjusted < LEVEL


class Comparison(NamedTuple):
    """All systems on one measure.

    Args:
        order: systems with a score, the best mean first.
        summaries: by system.
        differences: by pair of systems, in both orders.
        letters: compact letter display: two systems share a letter if and only if they are not
            separable; empty without a test.
        better: ``higher`` or ``lower``.
        noisy: the system that more than half of the pooled error comes from, if there is one among
            four or more; it hides differences between the others.
    """

    order: Tuple[str, ...]
    summaries: Dict[str, Summary]
    differences: Dict[Pair, Difference]
    letters: Dict[str, str]
    better: str
    noisy: Optional[str] = None

    @property
    def tested(self) -> bool:
        """Whether any pair could be tested, which takes two seeds."""
        return any(found.p is not None for found in self.differences.values())

    def relation(self, first: str, second: str) -> int:
        """1 if *first* is better than *second*, -1 if worse, 0 if the two are not separable.

        Their means may be in another order where one of them lacks seeds.
        """
        found = self.differences[first, second]
        if not found.separable:
            return 0
        return 1 if (found.mean > 0) == (self.better == "higher") else -1

    @property
    def unbalanced(self) -> bool:
        """Whether some system has fewer seeds than another one."""
        return len({summary.seeds for summary in self.summaries.values()}) > 1


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation and interval of the mean.

    Args:
        values: one score for each seed; around an infinite one there is neither a deviation nor an
            interval.
    """
    mean, number = float(np.mean(values)), len(values)
    if number < 2 or not np.isfinite(mean):
        return Summary(mean, None, number, None)
    sd = float(np.std(values, ddof=1))
    return Summary(mean, sd, number, _interval(mean, sd / number**0.5, number - 1))


def _interval(centre: float, error: float, degrees: float) -> Tuple[float, float]:
    student = import_extra("scipy.stats", "study --report").t
    reach = float(student.ppf(0.5 + CONFIDENCE / 2, degrees)) * error
    return centre - reach, centre + reach


def holm(p_values: Sequence[float]) -> List[float]:
    """p-values corrected for their number (Holm 1979).

    Args:
        p_values: the p-values of all tests of one family.
    """
    if not p_values:
        return []
    multitest = import_extra("statsmodels.stats.multitest", "study --report")
    return [float(p) for p in multitest.multipletests(list(p_values), method="holm")[1]]


def paired_t(first: Mapping[int, float], second: Mapping[int, float]) -> Optional[float]:
    """p-value of the two-sided paired t-test on the seeds that both have.

    Args:
        first: scores by seed.
        second: scores by seed.

    Returns:
        None if there are fewer than two seeds.
    """
    seeds = sorted(set(first) & set(second))
    if len(seeds) < 2:
        return None
    stats = import_extra("scipy.stats", "study --report")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about differences that are all the same
        p = float(stats.ttest_rel([first[s] for s in seeds], [second[s] for s in seeds]).pvalue)
    return 1.0 if np.isnan(p) else p


def differences(scores: Scores) -> Dict[Pair, Difference]:
    """Compare every pair of systems, in both orders.

    Args:
        scores: the scores of one measure; seeds may be missing.
    """
    return _differences(scores, fit(scores))


def _differences(scores: Scores, model: AdditiveModel) -> Dict[Pair, Difference]:
    found = {
        (first, second): _difference(scores[first], scores[second], model.difference(first, second))
        for first, second in combinations(scores, 2)
    }
    tested = [pair for pair, difference in found.items() if difference.p is not None]
    adjusted = holm([found[pair].p or 0.0 for pair in tested])
    for pair, p in zip(tested, adjusted):
        found[pair] = found[pair]._replace(adjusted=p)
    return {**found, **{(b, a): _turned(value) for (a, b), value in found.items()}}


def _difference(
    first: Mapping[int, float], second: Mapping[int, float], estimate: Optional[Estimate]
) -> Difference:
    if estimate is None:
        means = [float(np.mean(list(side.values()))) for side in (first, second)]
        return Difference(means[0] - means[1])
    mean, error, degrees = estimate
    if not degrees:
        return Difference(mean)
    p = _two_sided(mean, error, degrees) if error else float(not mean)
    alone = paired_t(first, second)
    return Difference(mean, _interval(mean, error, degrees), p, None, alone)


def _two_sided(mean: float, error: float, degrees: float) -> float:
    student = import_extra("scipy.stats", "study --report").t
    return float(2 * student.sf(abs(mean) / error, degrees))


def _turned(difference: Difference) -> Difference:
    ends = difference.interval
    turned = None if ends is None else (-ends[1], -ends[0])
    return difference._replace(mean=-difference.mean, interval=turned)


def compare(scores: Scores, better: str) -> Comparison:
    """Compare all systems on one measure.

    Args:
        scores: by system, then by seed; systems without a score are left out.
        better: ``higher`` or ``lower``.
    """
    scores = {name: found for name, found in scores.items() if found}
    summaries = {name: summarise(list(found.values())) for name, found in scores.items()}
    sign = -1 if better == "higher" else 1
    order = tuple(sorted(summaries, key=lambda name: sign * summaries[name].mean))
    model = fit(scores)
    found = _differences(scores, model)
    comparison = Comparison(order, summaries, found, {}, better, model.noisy())
    if not comparison.tested:
        return comparison
    separable = {pair: difference.separable for pair, difference in found.items()}
    return comparison._replace(letters=compact_letters(order, separable))


def compact_letters(order: Sequence[str], separable: Mapping[Pair, bool]) -> Dict[str, str]:
    """Compact letter display by insertion and absorption (Piepho 2004).

    >>> compact_letters("xyz", {("x", "z"): True})
    {'x': 'a', 'y': 'ab', 'z': 'b'}

    Args:
        order: systems, in the order in which letters are given out.
        separable: whether two systems differ, by pair in either order; pairs left out do not.

    Returns:
        letters such that two systems share one if and only if they are not separable.
    """
    groups = [frozenset(order)]
    for first, second in combinations(order, 2):
        if not (separable.get((first, second)) or separable.get((second, first))):
            continue
        split = [group for group in groups if not {first, second} <= group]
        for group in groups:
            if {first, second} <= group:
                split += [group - {first}, group - {second}]
        unique = list(dict.fromkeys(split))
        groups = [group for group in unique if not any(group < other for other in unique)]
    groups.sort(key=lambda group: [name not in group for name in order])
    return {
        name: "".join(_letter(i) for i, group in enumerate(groups) if name in group)
        for name in order
    }


def _letter(number: int) -> str:
    """a to z, A to Z, then a1, b1 and so on."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    turn, place = divmod(number, len(alphabet))
    return alphabet[place] + (str(turn) if turn else "")
