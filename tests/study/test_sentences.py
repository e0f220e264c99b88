"""Tests on the sentences of a test set, compared with their formulas and with other libraries."""

import numpy as np
import pytest

from fairseq_posenc.study import sentences
from fairseq_posenc.training.sentence_tasks.scores import SCORES

stats = pytest.importorskip("scipy.stats", reason="an extra: study")
for package in ("statsmodels", "sacrebleu"):
    pytest.importorskip(package, reason="an extra: study")


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
    test, p = sentences.compare_answers(kind, *texts, positive="1")
    assert test == "permutation" and p <= 0.05
    assert sentences.compare_answers(kind, texts[0], texts[0], texts[2], "1")[1] == 1


def test_f1_is_that_of_the_positive_class_whatever_its_place_in_the_alphabet(monkeypatch):
    monkeypatch.setattr(sentences, "RESAMPLES", 99)
    first, second = "n" * 90 + "y" * 5 + "n" * 5, "n" * 89 + "y" * 11
    sides = first, second, "n" * 90 + "y" * 10
    renamed = [side.translate({ord("y"): "a"}) for side in sides]
    p = sentences.compare_answers("f1", *sides, positive="y")[1]
    assert sentences.compare_answers("f1", *renamed, positive="a")[1] == p
    assert sentences.compare_answers("f1", *sides, positive="n")[1] != p


@pytest.mark.parametrize(
    "kind, answers, words",
    [
        ("mcc", "abc", "3 classes"),
        ("f1", "abb", "positive class"),
        ("pearson", ["1", "x", "2"], "no number"),
        ("spearman", ["1", "nan", "2"], "not a finite number"),
    ],
)
def test_answers_that_a_score_is_not_made_for(kind, answers, words):
    with pytest.raises(sentences.Untestable, match=words):
        sentences.compare_answers(kind, *([answer] for answer in answers))


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


def test_tokenizers_are_found_by_what_a_signature_calls_them(monkeypatch):
    from sacrebleu.metrics import BLEU

    made = []
    monkeypatch.setattr(BLEU, "__init__", lambda self, tokenize, **_: made.append(tokenize))
    for named in ("ja-mecab-0.996-IPA", "ko-mecab-0.996/ko-0.9.2-KO", "13a", "zh"):
        sentences.metric("bleu", f"nrefs:1|case:mixed|tok:{named}|smooth:exp", REFERENCES)
    assert made == ["ja-mecab", "ko-mecab", "13a", "zh"]


def test_tokenizers_that_are_not_there(monkeypatch):
    from sacrebleu.metrics import BLEU

    def missing(*_, **__):
        raise RuntimeError("\nneeds\nMeCab")

    with pytest.raises(sentences.Untestable, match="no tokenizer zhuyin"):
        sentences.metric("bleu", "tok:zhuyin", REFERENCES)
    monkeypatch.setattr(BLEU, "__init__", missing)
    with pytest.raises(sentences.Untestable, match="zh cannot be used here: needs MeCab"):
        sentences.metric("bleu", "tok:zh", REFERENCES)


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
