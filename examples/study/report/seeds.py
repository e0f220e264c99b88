"""Differences between systems across seeds: intervals, corrected p-values and letters.

With two systems, the t-test of their difference in the additive model of systems and seeds is the
paired t-test. With more systems, the error variance is pooled over all systems, because two or
three seeds alone say little about this variance.
"""

import math
import warnings
from itertools import combinations
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy import stats
from scipy.sparse.csgraph import connected_components
from statsmodels.stats.weightstats import DescrStatsW

LEVEL = 0.05  # the error rate of the tests; intervals have a confidence of 1 - LEVEL
POWER = 0.8  # the share of studies with :func:`seeds_for` seeds that find a difference
Interval = Tuple[float, float]
Pair = Tuple[str, str]
_COLUMNS = ("Conf. Int. Low", "Conf. Int. Upp.", "P>|t|", "pvalue-holm")  # of statsmodels


class Difference(NamedTuple):
    """The mean of a first system minus the mean of a second system, and its tests."""

    mean: float  # adjusted for seeds that only one of the two systems has
    interval: Optional[Interval] = None  # not corrected for the number of systems
    p: Optional[float] = None  # the p-value in the pooled model; None without a test
    adjusted: Optional[float] = None  # *p* after Holm's correction over all pairs of systems
    alone: Optional[float] = None  # p-value of the paired t-test on these two, not corrected
    deviation: float = 0.0  # pooled standard deviation of differences between runs of one seed

    @property
    def separable(self) -> bool:
        """Whether the difference is significant after the correction."""
        return self.adjusted is not None and self.adjusted < LEVEL


class Comparison(NamedTuple):
    """All systems on one measure."""

    # a row per system, the best first: ``mean``, ``std`` (n − 1), ``count``, and ``low`` and
    # ``high``, the ends of the 95 % interval of the mean by Student's t
    summary: pd.DataFrame
    differences: Dict[Pair, Difference]  # keyed by pair of systems, in both orders
    letters: Dict[str, str]  # two systems share a letter if and only if they are not separable
    better: str  # ``higher`` or ``lower``
    # p-values of tests of what the pooled model assumes: Levene's, that systems vary alike, and
    # Shapiro and Wilk's, that residuals are normal; empty without a test.  If any is below LEVEL,
    # there are no letters, and each pair has only its paired t-test
    assumed: Dict[str, float]

    def relation(self, first: str, second: str) -> int:
        """1 if *first* is better than *second*, -1 if worse, 0 if the two are not separable."""
        found = self.differences[first, second]
        if not found.separable:
            return 0
        return 1 if (found.mean > 0) == (self.better == "higher") else -1


def interval(values: Sequence[float]) -> Interval:
    """The 95 % interval of a mean by Student's t; NaN with one value."""
    if len(values) < 2:
        return math.nan, math.nan
    low, high = DescrStatsW(np.asarray(values)).tconfint_mean(LEVEL)
    return float(low), float(high)


def summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean, standard deviation, number of seeds and interval of each system."""
    grouped = scores.groupby("system", sort=False).score
    found = grouped.agg(["mean", "std", "count"])
    ends = [interval(values.to_numpy()) for _, values in grouped]
    found["low"], found["high"] = zip(*ends)
    return found


def connected(scores: pd.DataFrame) -> pd.DataFrame:
    """The scores of the largest group of systems linked, also indirectly, by common seeds."""
    table = pd.crosstab(scores.system, scores.seed)
    _, parts = connected_components(table.to_numpy() @ table.to_numpy().T)
    return scores[scores.system.isin(table.index[parts == np.bincount(parts).argmax()])]


def paired_t(scores: pd.DataFrame, first: str, second: str) -> Optional[float]:
    """p-value of the paired t-test on the seeds that both systems have; None if fewer than two."""
    table = scores[scores.system.isin([first, second])]
    table = table.pivot(index="seed", columns="system", values="score").dropna()
    if len(table) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about differences that are all equal
        p = float(stats.ttest_rel(table[first], table[second]).pvalue)
    return 1.0 if math.isnan(p) else p


def seeds_for(effect: float) -> int:
    """The least number of seeds with which a paired t-test at the 5 % level has a power of 80 %.

    Args:
        effect: the difference over its standard deviation across seeds, above 0.
    """
    # start from the normal distribution, which needs fewer seeds than Student's
    quantiles = stats.norm.ppf(1 - LEVEL / 2) + stats.norm.ppf(POWER)
    number = max(2, math.floor((quantiles / effect) ** 2))
    while _power(effect, number) < POWER:
        number += 1
    return number


def _power(effect: float, number: int) -> float:
    """The power of a paired t-test; statsmodels' function gives NaN for large effects."""
    limit = stats.t.ppf(1 - LEVEL / 2, number - 1)
    return float(stats.nct.sf(limit, number - 1, effect * number**0.5))


def compare(scores: pd.DataFrame, better: str) -> Comparison:
    """Compare all systems on one measure.

    Args:
        scores: columns ``system``, ``seed`` and ``score``.
        better: ``higher`` or ``lower``.
    """
    summary = summarise(scores).sort_values("mean", ascending=better == "lower", kind="stable")
    means, names = summary["mean"], list(dict.fromkeys(scores.system))
    found = {(a, b): Difference(float(means[a] - means[b])) for a, b in combinations(names, 2)}
    tested, assumed = _pooled(connected(scores))
    if min(assumed.values(), default=1) < LEVEL:  # only the paired tests are valid
        tested = {pair: Difference(one.mean, alone=one.alone) for pair, one in tested.items()}
    found.update(tested)
    letters = {}
    if any(one.p is not None for one in found.values()):
        separable = {pair: one.separable for pair, one in found.items()}
        letters = compact_letters(list(summary.index), separable)
    found.update({(b, a): _reversed(one) for (a, b), one in found.items()})
    return Comparison(summary, found, letters, better, assumed)


def _reversed(one: Difference) -> Difference:
    ends = one.interval and (-one.interval[1], -one.interval[0])
    return one._replace(mean=-one.mean, interval=ends)


def _pooled(scores: pd.DataFrame) -> Tuple[Dict[Pair, Difference], Dict[str, float]]:
    """Test all pairs in the additive model; returns {} and {} with only one system or seed."""
    names = list(dict.fromkeys(scores.system))
    if min(len(names), scores.seed.nunique()) < 2:
        return {}, {}
    data = scores.assign(system=scores.system.map(names.index))  # because names may have hyphens
    fit = smf.ols("score ~ C(system) + C(seed)", data).fit()
    if fit.df_resid < 1:
        return {}, {}
    exact = 1e-9 * float(scores.score.abs().max())  # rounding errors are smaller
    rigid = math.sqrt(fit.mse_resid) <= exact
    table = fit.t_test_pairwise("C(system)", method="holm", alpha=LEVEL).result_frame
    found = {}
    for label, row in table.iterrows():  # "1-0": indices of names, the later name first
        second, first = (names[int(one)] for one in str(label).split("-"))
        mean = -row["coef"] if abs(row["coef"]) > exact else 0.0
        low, high, p, adjusted = (row[one] for one in _COLUMNS)
        if rigid:  # without error variance, a difference is certain
            low, high, p, adjusted = -mean, -mean, float(not mean), float(not mean)
        alone = paired_t(scores, first, second)
        deviation = 0.0 if rigid else math.sqrt(2 * fit.mse_resid)
        found[first, second] = Difference(mean, (-high, -low), p, adjusted, alone, deviation)
    if rigid or len(names) < 3:
        return found, {}
    groups = [one.to_numpy() for _, one in fit.resid.groupby(data.system)]
    alike, normal = stats.levene(*groups, center="median"), stats.shapiro(fit.resid)
    return found, {"Levene": float(alike.pvalue), "Shapiro": float(normal.pvalue)}


def compact_letters(order: Sequence[str], separable: Mapping[Pair, bool]) -> Dict[str, str]:
    """Compact letter display by insertion and absorption (Piepho 2004).

    Args:
        order: systems, in the order in which they receive letters.
        separable: whether a pair of systems differs, in either order; missing pairs do not.

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
