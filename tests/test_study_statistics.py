"""Statistics of studies, compared with their formulas and with other libraries."""

import math
import random

import numpy as np
import pytest

from fairseq_posenc.criterions.scores import SCORES
from fairseq_posenc.study import sentences, statistics

stats = pytest.importorskip("scipy.stats", reason="an extra: study")
for package in ("statsmodels", "sacrebleu"):
    pytest.importorskip(package, reason="an extra: study")

FIRST = {1: 30.1, 2: 31.4, 3: 29.9, 4: 30.6}
SECOND = {1: 29.8, 2: 30.2, 3: 29.7, 4: 30.1}


def made_up(systems=6, seeds=3, step=0.25):
    noise = np.random.default_rng(5)
    return {
        f"s{i}": {seed: 30 + step * i + float(noise.normal()) * 0.2 for seed in range(seeds)}
        for i in range(systems)
    }


def test_two_systems_are_compared_by_the_paired_t_test():
    found = statistics.differences({"a": FIRST, "b": SECOND})["a", "b"]
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
    found = statistics.differences(scores)
    assert found["s4", "s1"].p == pytest.approx(2 * stats.t.sf(t, degrees))
    assert found["s4", "s1"].mean == pytest.approx(-found["s1", "s4"].mean)
    assert found["s4", "s1"].interval[0] == pytest.approx(-found["s1", "s4"].interval[1])
    assert found["s4", "s1"].alone == pytest.approx(stats.ttest_rel(y[4], y[1]).pvalue)


def test_a_missing_run_leaves_the_others_paired():
    scores = {"a": dict(FIRST), "b": {s: x - 0.7 for s, x in FIRST.items()}, "c": dict(FIRST)}
    del scores["c"][2]  # the best seed of all: a mean without it must not look worse
    found = statistics.differences(scores)["a", "c"]
    assert found.mean == pytest.approx(0) and found.p == 1


def test_systems_without_a_seed_in_common_are_not_tested():
    found = statistics.differences({"a": {1: 3.0, 2: 3.1}, "b": {3: 2.0, 4: 2.2}})["a", "b"]
    assert found.p is None and found.interval is None and not found.separable
    assert found.mean == pytest.approx(0.95)


def test_holm_by_hand():
    # sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2 but not below the one before, 0.5 * 1
    assert statistics.holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert statistics.holm([]) == []


def test_the_correction_is_over_all_pairs():
    found = statistics.differences(made_up())
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
    assert statistics.compare(scores, "higher").noisy is None
    scores["s2"][0] -= 10
    assert statistics.compare(scores, "higher").noisy == "s2"


# --- sentences


def answers(error, seed, number=200):
    draw = np.random.default_rng(seed)
    labels = np.random.default_rng(0).integers(2, size=number)
    return labels, np.where(draw.random(number) < error, 1 - labels, labels)


def test_mcnemar_is_the_binomial_test_of_the_sentences_with_one_right_answer():
    labels, first = answers(0.1, 1)
    second = answers(0.2, 2)[1]
    only_first = int(((first == labels) & (second != labels)).sum())
    only_second = int(((first != labels) & (second == labels)).sum())
    want = stats.binomtest(only_first, only_first + only_second).pvalue
    assert sentences.mcnemar(first, second, labels) == pytest.approx(want)
    assert sentences.mcnemar(first, first, labels) == 1


@pytest.mark.parametrize("kind", list(sentences.ROW_SCORES))
def test_scores_of_many_rows_are_those_of_one(kind):
    labels, _ = answers(0, 0)
    rows = np.array([answers(error, 3)[1] for error in (0.0, 0.2, 0.6)] + [np.ones(200)])
    rows = rows + (kind in ("pearson", "spearman")) * 0.3 * np.arange(200) / 200
    want = [SCORES[kind].compute(row, labels, 1) for row in rows]
    found = sentences.ROW_SCORES[kind](rows, labels)
    np.testing.assert_allclose(found, want, atol=1e-12)


@pytest.mark.parametrize("kind", ["mcc", "f1", "spearman"])
def test_permutation_separates_what_differs(kind, monkeypatch):
    monkeypatch.setattr(sentences, "RESAMPLES", 99)
    labels, good = answers(0.05, 1)
    texts = [[str(x) for x in side] for side in (good, answers(0.4, 2)[1], labels)]
    test, p = sentences.compare_answers(kind, *texts)
    assert test == "permutation" and p <= 0.05
    assert sentences.compare_answers(kind, texts[0], texts[0], texts[2])[1] == 1


def test_classes_that_a_score_does_not_have():
    with pytest.raises(ValueError, match="3 classes"):
        sentences.compare_answers("mcc", ["a"], ["b"], ["c"])


REFERENCES = [f"the {animal} sees {n} red houses ." for animal in ("dog", "cat") for n in range(30)]


def spoiled(every):
    return [
        line.replace("red", "blue") if i % every == 0 else line for i, line in enumerate(REFERENCES)
    ]


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_translations_are_tested_by_sacrebleu(name, monkeypatch):
    monkeypatch.setattr(sentences, "RESAMPLES", 100)
    scorer = sentences.metric(name, "", REFERENCES)
    found = sentences.compare_translations(
        scorer, spoiled(10), {"same": spoiled(10), "worse": spoiled(2)}
    )
    assert all(p <= 0.05 for p in found["worse"].values())
    assert all(p > 0.5 for p in found["same"].values())
    assert set(found["same"]) == {"bootstrap", "randomisation"}


@pytest.mark.parametrize(
    "name, settings",
    [
        ("bleu", {"tokenize": "char", "lowercase": True}),
        ("bleu", {}),
        ("chrf", {"word_order": 2, "char_order": 5}),
        ("chrf", {"whitespace": True, "lowercase": True}),
        ("ter", {"case_sensitive": True, "no_punct": True}),
    ],
)
def test_a_signature_gives_its_metric_back(name, settings):
    from sacrebleu.metrics import BLEU, CHRF, TER

    theirs = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[name](**settings)
    hypotheses = [line.upper() if i % 3 else line for i, line in enumerate(spoiled(2))]
    want = theirs.corpus_score(hypotheses, [REFERENCES]).score
    ours = sentences.metric(name, str(theirs.get_signature()), REFERENCES)
    assert ours.corpus_score(hypotheses, None).score == pytest.approx(want)
