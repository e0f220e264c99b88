"""Documents through a model folder: context, streams, engines, limits, and contrastive sets."""

import json
import math

import pytest
import torch
from support.model_folders import WORDS, write_model
from support.packed_models import log_probabilities

import fairseq_posenc
from fairseq_posenc import cli
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.documents import DocumentTranslator, in_documents
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.translate import Beam, Hypothesis
from fairseq_posenc.text.documents import SEPARATOR, Context

pytest_plugins = ["support.packed_models"]
LINES = ["a b", "c", "", "d", "", "", "e f", "g", "h"]


class Upper:
    """An engine that writes the last sentence of a source in capitals, after the prefix."""

    def __init__(self, source=40, target=60):
        self.calls, self.longest = [], {"source": source, "target": target}

    def translate(self, sources, prefixes, beam):
        self.calls += [
            (" ".join(s), " ".join(p), beam.max_length) for s, p in zip(sources, prefixes)
        ]
        found = []
        for source, prefix in zip(sources, prefixes):
            last = source[::-1].index(SEPARATOR) if SEPARATOR in source and prefix else len(source)
            new = [t if t == SEPARATOR else t.upper() for t in source[len(source) - last :]]
            found.append([Hypothesis([*prefix, *new], 0.0)])
        return found


def translator(engine, sentences, sides="both", longest=10):
    beam = Beam(4, 1.0, 1, longest, 4000)
    return DocumentTranslator(Preparation(Text()), engine, beam, Context(sentences, sides))


@pytest.mark.parametrize("buffer", [1, 2, 4, 100])
def test_a_sentence_follows_its_context_and_the_translations_of_that(buffer):
    engine = Upper()
    found = list(translator(engine, 1).translate(LINES, buffer))
    assert found == [line.upper() for line in LINES]
    assert sorted(engine.calls) == [
        ("a b", "", 11),
        ("a b <brk> c", "A B <brk>", 14),
        ("d", "", 11),
        ("e f", "", 11),
        ("e f <brk> g", "E F <brk>", 14),
        ("g <brk> h", "G <brk>", 13),
    ]


def test_context_of_one_side():
    engine = Upper()
    list(translator(engine, 2, "target").translate(LINES[6:], 9))
    assert engine.calls[-1][:2] == ("h", "E F <brk> G <brk>")
    engine = Upper()
    list(translator(engine, 2, "source").translate(LINES[6:], 9))
    assert engine.calls[-1][:2] == ("e f <brk> g <brk> h", "")


def test_whole_documents_come_back_in_lines(capsys):
    engine = Upper(source=8)
    assert list(translator(engine, None).translate(LINES, 1)) == [line.upper() for line in LINES]
    assert [call[0] for call in engine.calls] == ["a b <brk> c", "d", "e f <brk> g <brk> h"]
    assert capsys.readouterr().err == ""
    assert list(in_documents(["a", "", "b", "", "c"], 2)) == [["a", ""], ["b", ""], ["c"]]


@pytest.mark.parametrize("written, lines", [(["X"], ["X", ""]), (["X", "<brk>"] * 3, ["X", "X X"])])
def test_another_number_of_sentences_is_said(written, lines, capsys):
    engine = Upper()
    engine.translate = lambda sources, prefixes, beam: [[Hypothesis(written, 0.0)] for _ in sources]
    assert list(translator(engine, None).translate(["a", "b"], 9)) == lines
    said = capsys.readouterr().err
    assert said.startswith(f"lines 1 to 2: their translation has {len(written) // 2 * 2 // 2 + 1} ")


def test_a_line_that_is_too_long_is_empty_and_in_no_context(capsys):
    engine = Upper(source=5)
    found = list(translator(engine, 1).translate(["a", "b b b b b", "c", "d d d"], 9))
    assert found == ["A", "", "C", "D D D"]
    assert engine.calls[1][0] == "a <brk> c" and engine.calls[2][:2] == ("d d d", "")
    said = capsys.readouterr().err
    assert said.startswith("line 2: the line has 5 tokens")
    assert "1 sentences of context did not fit" in said


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    made = write_model(folder / "made", words=[*WORDS, SEPARATOR])
    flags = ["--context", "2", "--ctranslate2", "auto", "--trust-subwords"]
    cli.main(["pack", str(made / "model.pt"), str(folder / "x"), "--data", f"{made}/data", *flags])
    return folder / "x"


TEXT = ["the cat sleeps .", "cat", "", "the do@@ g barks .", "sleeps the", ". cat", "the"]


@pytest.mark.parametrize("engine", ["fairseq", "ctranslate2"])
def test_streaming_equals_all_at_once_with_real_engines(packed, engine, tmp_path, capsys):
    if engine == "ctranslate2" and read_model_folder(str(packed)).export is None:
        pytest.skip("ctranslate2 is not installed, or cannot compute the model")
    (tmp_path / "in").write_text("".join(line + "\n" for line in TEXT))
    found = []
    for buffer in ("1", "100"):
        flags = ["--documents", "--engine", engine, "--buffer", buffer, "--max-length", "5"]
        paths = ["--input", f"{tmp_path}/in", "--output", f"{tmp_path}/out"]
        cli.main(["translate", "--model", str(packed), *flags, *paths])
        found.append((tmp_path / "out").read_text().split("\n")[:-1])
    assert found[0] == found[1] and len(found[0]) == len(TEXT)


# ---- contrastive sets


def entry(line, *variants, distance=1, **more):
    errors = [{"contrastive": text, "type": "x"} for text in variants]
    words = {"src pronoun": "It", "ref pronoun": "sie", "ante distance": distance}
    return {"document id": "x.de", "segment id": line, "errors": errors, **words, **more}


@pytest.fixture
def score(packed, tmp_path, capsys):
    def run(entries, *flags, lines=2):
        folder = tmp_path / "documents" / "deep"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "x.en").write_text("the cat\nsleeps\n\nbarks\nthe do@@ g\n")
        (folder / "x.de").write_text("cat .\nthe .\n\n. .\nsleeps\n")
        (tmp_path / "choices.json").write_text(json.dumps(entries))
        paths = ["--choices", f"{tmp_path}/choices.json", "--documents", f"{tmp_path}/documents"]
        words = ["--model", str(packed), *paths, *flags, "--json", f"{tmp_path}/found.json"]
        cli.main(["score-choices", *words])
        return json.loads((tmp_path / "found.json").read_text()), capsys.readouterr()

    return run


def test_choices_are_scored_by_forced_decoding(packed, score):
    found, printed = score([entry(5, "cat", ". cat the"), entry(2, "the")], "--context", "1")
    model = fairseq_posenc.from_pretrained(packed)
    sources = [["barks", SEPARATOR, "the", "do@@", "g"], ["the", "cat", SEPARATOR, "sleeps"]]
    targets = [
        [[". . <brk> sleeps", ". . <brk> cat", ". . <brk> . cat the"], sources[0]],
        [["cat . <brk> the .", "cat . <brk> the"], sources[1]],
    ]
    for scores, (variants, source) in zip(found["scores"], targets):
        numbers = [model.task.source_dictionary.index(word) for word in [*source, "</s>"]]
        for value, variant in zip(scores, variants):
            dictionary = model.task.target_dictionary
            wanted = [dictionary.index(word) for word in [*variant.split(), "</s>"]]
            logits = model.models[0](
                torch.tensor([numbers]),
                torch.tensor([len(numbers)]),
                torch.tensor([[dictionary.eos(), *wanted[:-1]]]),
            )[0][0]
            assert value == pytest.approx(sum(log_probabilities(logits, wanted)), abs=1e-4)
    right = [scores[0] > max(scores[1:]) for scores in found["scores"]]
    assert found["accuracies"]["it:sie"] == {"accuracy": 50.0 * sum(right), "choices": 2}
    assert f"| all | {50.0 * sum(right):.1f} | 2 |" in " ".join(printed.out.split())


def test_groups_and_choices_without_variants(score):
    entries = [entry(5, "cat"), entry(2, "the", distance=7), entry(1), entry(4, None, "cat")]
    found, printed = score(entries)
    assert printed.err.endswith("2 of 4 choices lack variants\n")
    counts = {name: group["choices"] for name, group in found["accuracies"].items()}
    assert counts == {"all": 3, "it": 3, "it:sie": 3, "distance 1": 2, "distance >3": 1}


@pytest.mark.parametrize(
    "entries, message",
    [
        ([entry(9, "cat")], "entry 1: x.de has no sentence in line 9"),
        ([entry(3, "cat")], "entry 1: x.de has no sentence in line 3"),
        ([entry(1)], "no choice has a variant"),
        ([{"errors": []}], "entry 1: has no document id"),
        (
            [entry(1, "cat", distance=math.inf)],
            "entry 1: ante distance is Infinity; expected a who",
        ),
        ([entry(1, "cat", **{"document id": 5})], "entry 1: document id is 5; expected a text"),
        ([entry(1, "cat", **{"document id": "y.de"})], "has no file y.de"),
        ({}, "is no list of choices"),
    ],
)
def test_sets_that_cannot_be_scored(score, entries, message):
    with pytest.raises(UsageError, match=message):
        score(entries)


def test_flags_that_do_not_fit(packed, folder_of):
    translate = ["translate", "--model", str(packed), "--input", "x"]
    plain = str(folder_of("translation"))
    for words, message in (
        ([*translate, "--context", "1"], "--context 1: is for --documents"),
        ([*translate, "--documents", "--scores"], "--scores: translates sentences alone"),
        ([*translate, "--documents", "--context", "1,2"], "give one"),
        ([*translate, "--documents", "--context-sides", "source"], "give --context, too"),
        (["translate", "--model", plain, "--documents"], "was packed without --context"),
    ):
        with pytest.raises(UsageError, match=message):
            cli.main(words)
