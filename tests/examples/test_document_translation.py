"""Samples of documents, their translation sentence by sentence, and contrastive sets."""

import json
import math
import shutil

import pytest
from support.commands import USER_DIR
from support.model_folders import WORDS, write_model
from support.recipes import EXAMPLES, bash, recipe_module, succeed, write

FOLDER = EXAMPLES / "document_translation"
context = recipe_module("document_translation", "context")
contrastive = recipe_module("document_translation", "contrastive")

LANGUAGES = ["--source-lang", "en", "--target-lang", "de"]
ENGLISH = ["a b", "c", "d e f", "", "g", "h i", "", ""]
GERMAN = ["A", "C D", "D", "", "G H", "I", "", ""]


@pytest.fixture
def make(tmp_path, capsys, monkeypatch):
    def made(*flags, source=ENGLISH, target=GERMAN):
        paths = [tmp_path / name for name in ("in.en", "in.de", "out.en", "out.de")]
        for path, lines in zip(paths, (source, target)):
            write(path, lines)
        monkeypatch.setattr("sys.argv", ["context.py", *flags, *map(str, paths)])
        context.main()
        said = capsys.readouterr().err
        return [path.read_text(encoding="utf-8").splitlines() for path in paths[2:]], said

    return made


def test_samples_have_the_sentences_before_on_the_sides_that_are_asked_for(make):
    (source, target), said = make("--context", "1")
    assert source == ["a b", "a b <brk> c", "c <brk> d e f", "g", "g <brk> h i"]
    assert target == ["A", "A <brk> C D", "C D <brk> D", "G H", "G H <brk> I"]
    assert "2 documents, 5 sentences, 5 samples; 0 sentences of context" in said
    alone, _ = make("--context", "0")
    for side, changed in (("source", 0), ("target", 1)):
        both, _ = make("--context", "1", "--sides", side)
        assert both[changed] == (source, target)[changed]
        assert both[1 - changed] == alone[1 - changed]
    assert make("--context", "1", "--last")[0] == [source[2::2], target[2::2]]


def test_several_contexts_and_whole_documents(make):
    both, _ = make("--context", "0,whole")
    assert both[0] == ["a b", "c", "d e f", "a b <brk> c <brk> d e f", "g", "h i", "g <brk> h i"]
    assert both[1][3::3] == ["A <brk> C D <brk> D", "G H <brk> I"]
    assert make("--context", "whole", "--longest", "5")[0][0] == [
        "a b <brk> c",
        "d e f",
        "g <brk> h i",
    ]


def test_what_does_not_fit_is_cut_from_the_left_on_both_sides_and_counted(make):
    (source, target), said = make("--context", "2", "--longest", "6")
    assert source[2] == "c <brk> d e f" and target[2] == "C D <brk> D"
    assert "1 sentences of context did not fit, and 0 sentences were left out" in said
    (source, _), said = make("--context", "2", "--longest", "2")
    assert source == ["a b", "c", "g", "h i"]  # as long as 3, one sentence is in no sample
    assert "2 sentences of context did not fit, and 1 sentences were left out" in said


@pytest.mark.parametrize(
    "flags, change, message",
    [
        ("1", {"target": ["A", "", "D", "", "G", "I", "", ""]}, "line 2 is blank in one of them"),
        ("1", {"source": ENGLISH[:3], "target": GERMAN[:3]}, "has no blank line"),
        ("1", {"source": ["a <brk>", "", "b"], "target": ["A", "", "B"]}, "line 1 has <brk>"),
        ("1", {"source": ["", ""], "target": ["", ""]}, "has no sentence of at most 1022 tokens"),
        ("1", {"source": ENGLISH[:3]}, "have different numbers of lines"),
        ("whole --sides source", {}, "drop --sides source"),
    ],
)
def test_what_gives_no_samples(make, flags, change, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        make("--context", *flags.split(), **change)
    assert not (tmp_path / "out.en").exists()


# ---- a model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of documents, and what translates with it."""
    made = write_model(tmp_path_factory.mktemp("documents"), words=[*WORDS, context.SEPARATOR])
    words = [str(made / "data"), "--path", str(made / "model.pt"), *USER_DIR, "--cpu"]
    return recipe_module("document_translation", "translate"), [*words, *LANGUAGES]


def test_each_translation_is_what_a_search_finds_after_those_before(model):
    translate, words = model
    translator, _ = translate.loaded([*words, "--context", "2", "--beam", "2", "--max-len-b", "5"])
    text = [line.split() for line in ("the cat sleeps .", "cat", "the do@@ g barks .", "the")]
    found, known = list(translator.in_turn(text, 2, "both")), []
    for sentence, translation in zip(text, found):
        source = [each for one, _ in known[-2:] for each in (*one, "<brk>")] + sentence
        prefix = [each for _, one in known[-2:] for each in (*one, "<brk>")]
        assert translator.search(source, prefix, 1)[0] == translation
        known += [(sentence, translation)] if translation else []
    found = list(translator.in_turn(text[2:], 1, "source"))
    before = [*text[2], "<brk>"] if found[0] else []
    assert found[1] == translator.search([*before, *text[3]], [], 1)[0]


@pytest.mark.parametrize("written, lines", [("X", ["X", ""]), ("X <brk> X <brk> X", ["X", "X X"])])
def test_another_number_of_sentences_is_said(model, monkeypatch, written, lines, capsys):
    translate, words = model
    translator, _ = translate.loaded([*words, "--context", "whole"])
    found = [each.split() for each in written.split("<brk>")]
    monkeypatch.setattr(translator, "search", lambda *_: list(found))
    assert list(map(" ".join, translator.in_turn([["a"], ["b"]], None, "both"))) == lines
    assert (
        capsys.readouterr().err
        == f"a ...: {len(found)} sentences for 2; the last are joined or empty\n"
    )


# ---- contrastive sets


def entry(line, *variants, distance=1, **more):
    errors = [{"contrastive": text, "type": "x"} for text in variants]
    words = {"src pronoun": "It", "ref pronoun": "sie", "ante distance": distance}
    return {"document id": "x.de", "segment id": line, "errors": errors, **words, **more}


@pytest.fixture
def choices(tmp_path):
    def made(*entries):
        (tmp_path / "deep").mkdir(exist_ok=True)
        write(tmp_path / "deep" / "x.en", ["the cat", "sleeps", "", "barks", "the dog"])
        write(tmp_path / "deep" / "x.de", ["cat .", "the .", "", ". .", "sleeps"])
        (tmp_path / "choices.json").write_text(json.dumps(entries))
        return str(tmp_path / "choices.json")

    return made


def test_each_translation_becomes_a_document(choices, tmp_path):
    path, outputs = (
        choices(entry(5, "cat"), entry(1), entry(2, "the")),
        [f"{tmp_path}/o.en", f"{tmp_path}/o.de"],
    )
    contrastive.write(path, str(tmp_path), *outputs)
    english, german = ((tmp_path / name).read_text().split("\n\n") for name in ("o.en", "o.de"))
    assert english == ["barks\nthe dog"] * 2 + ["the cat\nsleeps"] * 2 + [""]
    assert german == [". .\nsleeps", ". .\ncat", "cat .\nthe .", "cat .\nthe", ""]


def test_accuracies_by_group(choices, tmp_path, capsys):
    path = choices(entry(5, "cat"), entry(1), entry(2, "the", "a", distance=7))
    lines = ["-1 -1", "-3", "-2 -4", "-6", "-7"]  # the second choice is not decided
    written = [
        f"S-{n}\t{'a' if n < 2 else 'b'}\nH-{n}\t0\tx\nP-{n}\t{line}"
        for n, line in enumerate(lines)
    ]
    generated = write(tmp_path / "generated", written)
    contrastive.score(path, generated, f"{tmp_path}/found.json")
    said = capsys.readouterr()
    assert (
        said.err == f"{path}: 2 of 3 choices have variants\n" and "| all | 50.0 | 2 |" in said.out
    )
    found = json.loads((tmp_path / "found.json").read_text())
    right = {name: group["accuracy"] for name, group in found["accuracies"].items()}
    assert right == {"all": 50, "it": 50, "it:sie": 50, "distance 1": 100, "distance >3": 0}
    assert found["scores"][0] == pytest.approx([-2 * math.log(2), -3 * math.log(2)])
    with pytest.raises(SystemExit, match="line 3: variants have different contexts"):
        contrastive.score(
            path, write(tmp_path / "other", [*written[:-1], written[-1].replace("b", "a")])
        )
    with pytest.raises(SystemExit, match="has other sentences than"):
        contrastive.score(path, write(tmp_path / "few", written[:3]))


@pytest.mark.parametrize(
    "entries, message",
    [
        ([entry(9, "cat")], "x.de has no sentence in line 9"),
        ([entry(3, "cat")], "x.de has no sentence in line 3"),
        ([entry(1)], "there is nothing to score"),
        ([{"errors": []}], "entry 1: is no choice like ContraPro's"),
        ([entry(1, "cat", distance=math.inf)], "entry 1: is no choice"),
        ([entry(1, "cat", **{"document id": "y.de"})], "has no file y.en or y.de"),
        ([5], "entry 1: is no choice"),
    ],
)
def test_sets_that_cannot_be_scored(choices, entries, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        contrastive.write(choices(*entries), str(tmp_path), f"{tmp_path}/o.en", f"{tmp_path}/o.de")


# ---- the recipe


def test_documents_are_prepared_once(tmp_path):
    (tmp_path / "texts").mkdir()
    for split in ("train", "valid", "test"):
        write(tmp_path / "texts" / f"{split}.en", ["It is new.", "A lamp.", ""] * 2)
        write(tmp_path / "texts" / f"{split}.de", ["Es ist neu.", "Die.", ""] * 2)
    succeed(FOLDER / "prepare.sh", "texts", "out", cwd=tmp_path)
    assert "<brk>" in (tmp_path / "out" / "data-bin" / "dict.en.txt").read_text()
    again = succeed(FOLDER / "prepare.sh", "texts", "out", cwd=tmp_path)
    assert again.stdout == "out/data-bin is there\n"
    other = bash(FOLDER / "prepare.sh", "texts", "out", cwd=tmp_path, CONTEXT="whole")
    assert other.returncode == 1 and "CONTEXT=whole" in other.stderr
    assert "out has SOURCE=en" in other.stderr and "CONTEXT=0,3" in other.stderr


def test_documents_are_translated_and_choices_scored(model, choices, tmp_path):
    """The data of the recipe, of a model whose dictionary has few words."""
    _, (data, _, checkpoint, *_) = model
    shutil.copytree(data, tmp_path / "data")
    write(
        tmp_path / "data" / "text.settings", ["SOURCE=en", "TARGET=de", "CONTEXT=0,1", "SIDES=both"]
    )
    for lang in ("en", "de"):
        write(tmp_path / "data" / f"test.{lang}", ["the cat", "barks", "", "sleeps .", ""])
    asked = {"CHOICES": choices(entry(5, "cat"), entry(2, "the cat")), "DOCUMENTS": str(tmp_path)}
    flags = ["--cpu", "--max-len-b", "5"]
    succeed(FOLDER / "evaluate.sh", "data", checkpoint, "out", *flags, cwd=tmp_path, **asked)
    lines = (tmp_path / "out" / "hypotheses.txt").read_text().split("\n")
    assert len(lines) == 6 and lines[2] == lines[4] == ""
    assert "d-BLEU " in (tmp_path / "out" / "scores.txt").read_text()
    scores = json.loads((tmp_path / "out" / "choices-1.json").read_text())
    assert scores["accuracies"]["all"]["choices"] == 2 and all(map(len, scores["scores"]))
    assert (tmp_path / "out" / "choices-1.en").read_text().startswith("barks <brk> the dog\n")
