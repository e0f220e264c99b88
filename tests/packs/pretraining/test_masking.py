"""Masks of words, phrases and spans, and refusals."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from support.conversion import write_ids
from support.model_folders import dictionary as dictionary_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat.data import bpe_flags
from fairseq_posenc.packs.pretraining import masked_samples
from fairseq_posenc.packs.pretraining.masked_lm_pairs import MaskedLMPairsConfig
from fairseq_posenc.packs.pretraining.masking import (
    LONGEST,
    GeometricSpans,
    Phrases,
    marked_words,
    read_phrases,
    span_lengths,
)
from tests.packs.pretraining import text_pairs
from tests.packs.pretraining.text_pairs import CLS, END, PAD

pytestmark = pytest.mark.properties
#: five words of up to three pieces, with the marks of each tool
MARKED = {
    "sentencepiece": "▁the ▁ho use s ▁is ▁blue ▁to day",
    "byte-bpe": "Ġthe Ġho use s Ġis Ġblue Ġto day",
    "wordpiece": "the ho ##use ##s is blue to ##day",
    "subword-nmt": "the ho@@ use@@ s is blue to@@ day",
}
STARTS = [True, True, False, False, True, True, True, False]


@pytest.mark.parametrize("tool", MARKED)
def test_words_are_those_that_the_dictionary_marks(tool):
    pieces = MARKED[tool].split()
    dictionary = dictionary_of([*pieces, "▁", "##", "@@"])  # a mark alone is an ordinary symbol
    tokens = np.array([dictionary.index(piece) for piece in pieces])
    assert marked_words(dictionary).starts(tokens).tolist() == STARTS


def test_a_dictionary_of_words_or_numbers_marks_none():
    for symbols in ("a b c".split(), [str(n) for n in range(99)], []):
        assert marked_words(dictionary_of(symbols)) is None
    many = [f"w{number}" for number in range(300)]
    assert marked_words(dictionary_of([*many, "##hash"])) is None  # one ## in 300 is no mark


def test_the_longest_phrase_of_whole_words_is_joined():
    phrases = Phrases([[5, 6], [5, 6, 7, 8], [8, 9], [6, 7, 8]])
    tokens, starts = np.array([5, 6, 7, 8, 9, 5, 6, 7, 6, 7]), np.full(10, True)
    # three cases: each token is a word; 7 8 (the end of 5 6 7 8) is a word; 7 8 9 is a word
    for inside, first in ((None, [0, 4]), (3, [0, 4]), (4, [0, 2])):
        starts[inside or []] = False
        assert np.flatnonzero(phrases.join(tokens, starts)).tolist() == [*first, 5, 7, 8, 9]


def test_phrases_are_read_in_the_symbols_of_the_dictionary(tmp_path):
    dictionary, file = dictionary_of("new york city".split()), tmp_path / "phrases.txt"
    file.write_text("new york\n\nnew delhi\n new york city \n")
    assert read_phrases(str(file), dictionary).known == {4: {(4, 5), (4, 5, 6)}}
    file.write_text("old delhi\n")
    with pytest.raises(UsageError, match="phrases.txt: has no phrase in the symbols"):
        read_phrases(str(file), dictionary)
    file.write_bytes(b"new \xff\n")
    with pytest.raises(UsageError, match="--phrases .*phrases.txt: line .: not UTF-8"):
        read_phrases(str(file), dictionary)
    with pytest.raises(UsageError, match="--phrases nowhere: no such file"):
        read_phrases("nowhere", dictionary)


def test_lengths_of_spans_are_geometric_up_to_ten_and_the_share_is_exact():
    """SpanBERT section 3.1: Geo(0.2) up to 10, which has the mean 3.8."""
    expected = np.array([0.2 * 0.8 ** (n - 1) for n in range(1, 11)])
    expected /= expected.sum()
    np.testing.assert_allclose(span_lengths(), expected)
    assert round(float(expected @ np.arange(1, 11)), 1) == 3.8
    choose, draw, texts, units = GeometricSpans(), np.random.default_rng(3), 600, 258
    maskable, lengths, masked = np.full(units, True), [], []
    for _ in range(texts):
        spans = sorted(choose(maskable, 0.15, draw))
        lengths += [b - a for a, b in spans]
        masked.append(sum(b - a for a, b in spans))
        assert spans[0][0] > 0 and spans[-1][1] < units  # with a unit before and after
        assert all(before < after for (_, before), (after, _) in zip(spans, spans[1:]))
    counts = np.bincount(lengths, minlength=11)[1:]
    assert len(counts) == LONGEST
    chi2 = ((counts - len(lengths) * expected) ** 2 / (len(lengths) * expected)).sum()
    assert chi2 < 21.7  # the 99th percentile for 9 degrees of freedom
    error = np.std(masked) / texts**0.5
    assert abs(np.mean(masked) - 0.15 * 256) < 3 * error < 1


PIECES = [f"▁w{n}" for n in range(20)] + [f"x{n}" for n in range(20)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in PIECES))
    (folder / "phrases.txt").write_text("".join(f"▁w{n} x{n} ▁w{n + 1}\n" for n in range(8)))
    draw, lines = np.random.default_rng(0), []
    for _ in range(400):
        words = draw.integers(0, 20, draw.integers(5, 30))
        pieces = [[4 + w] + [24 + w] * draw.integers(0, 3) for w in words.tolist()]
        lines.append([token for word in pieces for token in word] + [END])
    write_ids(folder / "train", lines)
    return folder


def task_of(data, **flags):
    flags = {"tokens_per_sample": 64, "sample_break_mode": "none", **flags}
    return text_pairs.task_of(data, **flags)


def samples_of(task):
    """Yield the original tokens, the input and the target of each sample."""
    samples = text_pairs.samples_of(task)
    for original, (source, target, _) in zip(text_pairs.originals(samples), samples):
        yield map(np.array, (original, source, target))


def runs(asked):
    edges = np.flatnonzero(np.diff(np.concatenate(([0], asked, [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))


@pytest.mark.parametrize("masking", ["words", "spans", "phrases"])
def test_words_and_phrases_are_masked_whole_and_special_tokens_never(masking, data):
    phrases = str(data / "phrases.txt") if masking == "phrases" else None
    task = task_of(data, masking=masking, phrases=phrases)
    begins = np.array([t < 24 for t in range(len(task.source_dictionary))])
    fates, masked, tokens = [], 0, 0
    for original, source, target in samples_of(task):
        asked = target != PAD
        special = np.isin(original, (CLS, END))
        assert not (asked & special).any() and (target[asked] == original[asked]).all()
        assert (source == original)[~asked].all()
        assert ((source > 3) | special).all()  # no token becomes a special one
        inside = ~begins[original[1:]] & ~special[:-1]
        assert (asked[1:] == asked[:-1])[inside].all()  # no word is cut
        if masking == "phrases":
            for n in range(len(original) - 3):
                first, part, last = original[n : n + 3]
                if (part, last) == (first + 20, first + 1) and first < 12 and original[n + 3] < 24:
                    overlaps = n >= 2 and original[n - 1] == original[n - 2] + 20
                    assert overlaps or asked[n : n + 3].all() or not asked[n : n + 3].any()
        for start, end in runs(asked) if masking == "spans" else ():
            assert start > 0 and end < len(original)  # with a token before and after
            kept = (source == original)[start:end].all()
            fates.append(0 if (source == task.mask_idx)[start:end].all() else 1 if kept else 2)
            assert fates[-1] < 2 or (source != task.mask_idx)[start:end].all()
        masked, tokens = masked + asked.sum(), tokens + (~special).sum()
    assert masked / tokens == pytest.approx(0.15, abs=0.01)
    if masking == "spans":
        shares = np.bincount(fates) / len(fates)
        np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.05)


def test_beginnings_of_words_may_be_those_of_bpe(data, monkeypatch):
    """GPT-2's symbols are numbers without marks of words."""
    begins = (torch.arange(70) % 2).byte()
    bpe = Namespace(is_beginning_of_word=None)
    monkeypatch.setattr(masked_samples, "build_bpe", lambda flags: bpe if flags else None)
    monkeypatch.setattr(masked_samples, "get_whole_word_mask", lambda *_: begins)
    numbers = dictionary_of([str(n) for n in range(60)])
    found = masked_samples._words("words", numbers, "gpt2").starts(np.array([5, 6, 8, 9]))
    assert found.tolist() == [True, False, False, True]
    assert masked_samples._words("spans", numbers, None).begins.all()
    with pytest.raises(UsageError, match="--masking words: no symbols .* --bpe .* gpt2"):
        masked_samples._words("words", numbers, None)
    cfg = OmegaConf.create({"task": {"seed": 1}, "bpe": {"_name": "gpt2"}})
    assert bpe_flags(Namespace(cfg=cfg.task)) == {"_name": "gpt2"}
    assert bpe_flags(Namespace(cfg=MaskedLMPairsConfig())) is None
