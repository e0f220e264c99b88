"""Raw text through a model folder: lines and their order, words, subwords."""

from argparse import Namespace

import pytest
from fairseq.dataclass.configs import GenerationConfig

from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.translate import MAX_LENGTH, Beam, Hypothesis, translated

pytestmark = pytest.mark.formulas


class Reverse:
    """An engine that reverses tokens, in n versions."""

    def __init__(self, longest=40):
        self.calls, self.longest = [], {"source": 6, "target": longest}

    def translate(self, sources, prefixes, beam):
        assert all(sources)
        self.calls.append((len(sources), beam.max_length))
        return [
            [Hypothesis([*p, *s[::-1], *["!"] * n], -float(n)) for n in range(beam.n_best)]
            for s, p in zip(sources, prefixes)
        ]


PLAIN = Preparation(Text())
PLAINLY = {"scores": False, "prefix": False}
LINES = ["a b", "", "c", "a b c d e f", " ", "d e f"]


@pytest.mark.parametrize("buffer", [1, 2, 100])
def test_every_line_keeps_its_place(buffer, capsys):
    engine = Reverse()
    args = Namespace(buffer=buffer, **PLAINLY)
    found = list(translated(LINES, PLAIN, engine, Beam(4, 1.0, 1, 100, 4000), args))
    assert found == ["b a", "", "c", "", "", "f e d"]
    assert capsys.readouterr().err.startswith("line 4: the line has 6 tokens")
    assert max(length for _, length in engine.calls) == 39  # of the target, besides </s>
    assert len(engine.calls) == {1: 3, 2: 3, 100: 1}[buffer]


def test_the_limit_does_not_depend_on_the_neighbours():
    """A short line beside long ones may have as long a translation as the short line alone."""
    assert GenerationConfig().max_len_b == MAX_LENGTH
    engine = Reverse(longest=1000)
    args, beam = Namespace(buffer=10, **PLAINLY), Beam(4, 1.0, 1, MAX_LENGTH, 4000)
    for lines in (["a"], ["a", "a b c d e"]):
        list(translated(lines, PLAIN, engine, beam, args))
    assert {length for _, length in engine.calls} == {MAX_LENGTH}


def test_n_best_scores_and_prefixes(capsys):
    args, beam = Namespace(buffer=10, scores=True, prefix=True), Beam(4, 1.0, 2, 100, 4000)
    assert list(translated(["a b\tx", "", "c"], PLAIN, Reverse(), beam, args)) == [
        *("1\t-0.0000\tx b a", "1\t-1.0000\tx b a !"),
        *("2\t0.0000\t", "2\t0.0000\t"),
        *("3\t-0.0000\tc", "3\t-1.0000\tc !"),
    ]


def test_lines_stream(capsys):
    """A translation comes before the next line is read."""
    read = []

    def lines():
        for line in ("a", "b"):
            read.append(line)
            yield line

    args, beam = Namespace(buffer=1, **PLAINLY), Beam(1, 1.0, 1, 9, 99)
    out = translated(lines(), PLAIN, Reverse(), beam, args)
    assert next(out) == "a"
    assert read == ["a"]


def test_text_comes_back_through_sentencepiece(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece", reason="an extra: subwords")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["The cat sleeps.", "The dog barks."] * 9),
        model_prefix=str(tmp_path / "pieces"),
        vocab_size=20,
        byte_fallback=False,
        minloglevel=2,
    )
    text = Text("en", "en", subwords="sentencepiece", subword_file="pieces.model")
    preparation = Preparation(text, str(tmp_path))
    tokens = preparation.source("The cat  barks.")
    assert len(tokens) > 3
    assert preparation.restore(tokens) == "The cat barks."
