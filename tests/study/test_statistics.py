"""Statistics of studies, compared with their formulas and with other libraries."""

import math
import random
import warnings

import numpy as np
import pytest

from fairseq_posenc.study import statistics

stats = pytest.importorskip("scipy.stats", reason="an extra: study")
pytest.importorskip("statsmodels", reason="an extra: study")

FIRST = {1: 30.1, 2: 31.4, 3: 29.9, 4: 30.6}
SECOND = {1: 29.8, 2: 30.2, 3: 29.7, 4: 30.1}


def made_up(systems=6, seeds=3, step=0.25):
    noise = np.random.default_rng(5)
    return {
        f"s{i}": {seed: 30 + step * i + float(noise.normal()) * 0.2 for seed in range(seeds)}
        for i in range(systems)
    }


def test_two_systems_are_compared_by_the_paired_t_test():
    found = statistics.compare({"a": FIRST, "b": SECOND}, "higher").differences["a", "b"]
    d = [FIRST[seed] - SECOND[seed] for seed in FIRST]
    mean = sum(d) / 4
    error = math.sqrt(sum((x - mean) ** 2 for x in d) / 3 / 4)
    p = 2 * stats.t.sf(mean / error, 3)
    reach = stats.t.ppf(0.975, 3) * error
    assert found.mean == pytest.approx(mean)
    assert found.p == found.adjusted == pytest.approx(p)
    assert found.alone == pytest.approx(p)
    assert found.interval == pytest.approx((mean - reach, mean + reach))


def test_with_more_systems_the_error_is_that_of_the_analysis_of_variance():
    scores = made_up()
    y = np.array([list(found.values()) for found in scores.values()])
    residual = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    degrees = (6 - 1) * (3 - 1)
    error = math.sqrt(2 * (residual**2).sum() / degrees / 3)
    t = (y[4].mean() - y[1].mean()) / error
    found = statistics.compare(scores, "higher").differences
    assert found["s4", "s1"].p == pytest.approx(2 * stats.t.sf(t, degrees))
    assert found["s4", "s1"].mean == pytest.approx(-found["s1", "s4"].mean)
    assert found["s4", "s1"].interval[0] == pytest.approx(-found["s1", "s4"].interval[1])
    assert found["s4", "s1"].alone == pytest.approx(stats.ttest_rel(y[4], y[1]).pvalue)


def test_the_deviation_of_a_pair_is_that_of_the_paired_differences():
    found = statistics.compare({"a": FIRST, "b": SECOND}, "higher").differences["a", "b"]
    assert found.deviation == pytest.approx(np.std([FIRST[s] - SECOND[s] for s in FIRST], ddof=1))


@pytest.mark.parametrize("effect", [0.3, 1.0, 2.0, 6.0, 50.0])
def test_the_number_of_seeds_that_would_separate_two_systems(effect):
    """In 20,000 studies with that many seeds, 80 % find the difference; with one less, fewer."""

    def found(number):
        drawn = np.random.default_rng(7).normal(effect, size=(20_000, number))
        t = drawn.mean(1) / drawn.std(1, ddof=1) * number**0.5
        return (t > stats.t.ppf(0.975, number - 1)).mean()

    number = statistics.seeds_for(effect)
    assert number == 2 or found(number - 1) < 0.8 + 0.01
    assert found(number) > 0.8 - 0.01


def test_a_difference_of_nothing_has_no_number_of_seeds():
    assert statistics.Difference(0.0, deviation=1.0).seeds_needed is None
    assert statistics.Difference(1.0).seeds_needed is None
    assert statistics.Difference(1.0, deviation=0.0).seeds_needed == 2


def test_a_missing_run_leaves_the_others_paired():
    scores = {"a": dict(FIRST), "b": {s: x - 0.7 for s, x in FIRST.items()}, "c": dict(FIRST)}
    del scores["c"][2]  # the best seed of all: a mean without it must not look worse
    found = statistics.compare(scores, "higher").differences["a", "c"]
    assert found.mean == pytest.approx(0) and found.p == 1


def test_systems_without_a_seed_in_common_are_not_tested():
    found = statistics.compare(
        {"a": {1: 3.0, 2: 3.1}, "b": {3: 2.0, 4: 2.2}}, "higher"
    ).differences["a", "b"]
    assert found.p is None and found.interval is None and not found.separable
    assert found.mean == pytest.approx(0.95)


def test_holm_by_hand():
    # sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2 but not below the one before, 0.5 * 1
    assert statistics.holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert statistics.holm([]) == []


def test_the_correction_is_over_all_pairs():
    found = statistics.compare(made_up(), "higher").differences
    pairs = [pair for pair in found if pair[0] < pair[1]]
    smallest = min(pairs, key=lambda pair: found[pair].p)
    assert len(pairs) == 15
    assert found[smallest].adjusted == pytest.approx(15 * found[smallest].p)
    assert all(found[pair].adjusted >= found[pair].p for pair in pairs)


def test_systems_share_a_letter_if_and_only_if_they_are_not_separable():
    draw = random.Random(1)
    for trial in range(60):
        order = [f"s{i}" for i in range(draw.randint(2, 9))]
        separable = {
            (a, b): draw.random() < 0.1 * (trial % 10) for a in order for b in order if a < b
        }
        letters = statistics.compact_letters(order, separable)
        for (a, b), apart in separable.items():
            assert bool(set(letters[a]) & set(letters[b])) != apart
        assert letters[order[0]].startswith("a")


@pytest.mark.parametrize("better, first", [("higher", "s5"), ("lower", "s0")])
def test_the_best_mean_comes_first(better, first):
    compared = statistics.compare({**made_up(step=1.0), "empty": {}}, better)
    assert compared.order[0] == first
    assert compared.letters[first].startswith("a")
    assert "empty" not in compared.order


def test_one_seed_is_not_tested():
    compared = statistics.compare(made_up(seeds=1), "higher")
    assert not compared.tested and compared.letters == {}
    assert compared.summaries["s0"].sd is None and compared.summaries["s0"].interval is None


def test_equal_scores_are_not_separable():
    compared = statistics.compare({"a": FIRST, "b": FIRST}, "higher")
    assert compared.letters == {"a": "a", "b": "a"}


def test_the_interval_of_a_mean():
    values = list(FIRST.values())
    found = statistics.summarise(values)
    want = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert found.interval == pytest.approx(want)
    assert found.sd == pytest.approx(np.std(values, ddof=1))


def test_a_system_that_dominates_the_error_is_named():
    scores = made_up()
    assert statistics.compare(scores, "higher").noisy == ()
    scores["s2"][0] -= 10
    assert statistics.compare(scores, "higher").noisy == ("s2",)


@pytest.mark.parametrize("others, named", [(5, ()), (6, ("a", "b")), (14, ("a", "b"))])
def test_two_systems_that_dominate_the_error_are_named(others, named):
    random = np.random.default_rng(1)
    scores = {f"s{n}": dict(enumerate(random.normal(30, 0.5, 3))) for n in range(others)}
    scores["a"], scores["b"] = {0: 30.0, 1: 30.0, 2: 35.0}, {0: 30.0, 1: 35.0, 2: 30.0}
    assert statistics.compare(scores, "higher").noisy in (named, named[::-1])


@pytest.mark.parametrize("scale, count, named", [(10, 5, 4), (10, 9, 0), (2, 5, 0)])
def test_a_quarter_of_the_systems_that_dominate_the_error_are_named(scale, count, named):
    random = np.random.default_rng(1)
    scores = {
        f"s{n}": dict(enumerate(random.permutation([-1, 0, 1]) * (scale if n < count else 1.0)))
        for n in range(21)
    }
    found = set(statistics.compare(scores, "lower").noisy)
    assert len(found) == named and found <= {f"s{n}" for n in range(count)}


def test_a_system_without_deviation_can_be_the_noisy_one():
    """All others rise and fall with the seed."""
    scores = {name: {1: 30.0 + x, 2: 33.0 + x, 3: 31.0 + x} for x, name in enumerate("abcdef")}
    scores["f"] = {1: 30.0, 2: 30.0, 3: 30.0}
    compared = statistics.compare(scores, "higher")
    assert compared.noisy == ("f",) and compared.summaries["f"].sd == 0
    equal = {"a": {1: 1.0, 2: 2.0}, "b": {1: 2.0, 2: 1.0}, "c": {1: 1.0}, "d": {2: 1.0}}
    assert statistics.compare(equal, "higher").noisy == ()  # which of the two is due to rounding


def test_scores_of_another_seed_are_no_error():
    """The third seed, on which only s0 was trained, is worse for all systems."""
    scores = {name: {1: 30.0, 2: 31.0} for name in ("s0", "s1", "s2", "s3")}
    scores["s0"][3] = 10.0
    scores["s1"][2] += 0.1
    assert statistics.compare(scores, "higher").noisy == ("s1",)


def test_the_direction_is_that_of_the_same_seeds():
    """The mean of b is the best, because b has only the best seed, with which it is the worst."""
    scores = {name: {1: 10.0 + x, 2: 20.0 - x, 3: 30.0} for name, x in zip("acd", (0, 0.1, -0.05))}
    scores["b"] = {3: 29.0}
    compared = statistics.compare(scores, "higher")
    assert compared.order[0] == "b" and compared.unbalanced
    assert compared.differences["b", "a"].mean == pytest.approx(-1.0, abs=0.05)
    assert [compared.relation("b", name) for name in "acd"] == [-1, -1, -1]
    assert [compared.relation(name, "b") for name in "acd"] == [1, 1, 1]
    assert statistics.compare(scores, "lower").relation("b", "a") == 1


@pytest.mark.parametrize(
    "scores",
    [
        made_up(),
        {"a": FIRST, "b": SECOND},
        {"a": {1: 3.0, 2: 3.1}, "b": {3: 2.0, 4: 2.2}, "c": {1: 2.9, 2: 3.2}},
        {"a": {1: 3.0}, "b": {1: 2.0}},
    ],
)
def test_nothing_is_printed_about_the_design(scores):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statistics.compare(scores, "higher")


def test_without_a_test_a_difference_is_still_that_of_the_same_seeds():
    found = statistics.compare({"a": {1: 10.0, 2: 20.0}, "b": {2: 21.0}}, "higher").differences[
        "b", "a"
    ]
    assert found.mean == pytest.approx(1.0) and found.p is None


def test_scores_around_an_infinite_one_have_no_interval():
    found = statistics.summarise([1.0, math.inf])
    assert found.mean == math.inf and found.sd is None and found.interval is None
