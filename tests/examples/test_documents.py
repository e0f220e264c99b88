"""Document translation: published corpora, translation in context, contrastive sets, the recipe."""

import gzip
import hashlib
import json
import math
import shutil

import pytest
from support.commands import USER_DIR
from support.model_folders import WORDS, write_model
from support.recipes import EXAMPLES, archive, bash, recipe_module, succeed, write

FOLDER = EXAMPLES / "document_translation"
context, contrastive = (
    recipe_module("document_translation", name) for name in ("context", "contrastive")
)

# --- published documents

CORPUS = FOLDER / "corpus.sh"
TALK = '<doc docid="{0}">\n<url>x</url>\n<title>T</title>\nIt is {0}.\n{1}\n</doc>\n'
SEGMENTS = '<doc docid="1">\n<seg id="1"> {} &amp; more </seg>\n</doc>\n'


def ted():
    inner = "DeEnItNlRo-DeEnItNlRo"
    files = {}
    for lang in ("en", "de"):
        files[f"{inner}/train.tags.en-de.{lang}"] = TALK.format(1, lang) + TALK.format(2, lang)
        files[f"{inner}/IWSLT17.TED.dev2010.en-de.{lang}.xml"] = SEGMENTS.format(f"dev {lang}")
        files[f"{inner}/IWSLT17.TED.tst2010.en-de.{lang}.xml"] = SEGMENTS.format(f"tst {lang}")
    whole = archive({name: text.encode() for name, text in files.items()})
    return archive({f"2017-01-trnmted/texts/DeEnItNlRo/DeEnItNlRo/{inner}.tgz": whole})


def news():
    lines = [f"Satz {n}.\tSentence {n}.\nMehr.\tMore.\n\n" for n in range(7)]
    return gzip.compress("".join(lines).encode(), mtime=0)


NEWS = [[f"{{}} {n}.\n{{}}.\n\n" for n in part] for part in (range(3), (3, 4), (5, 6))]
TED = ["It is 1.\n{0}\n\nIt is 2.\n{0}\n\n", "dev {0} & more\n\n", "tst {0} & more\n\n"]
CORPORA = {
    "news-commentary": ("news-commentary-v14.de-en.tsv.gz", news),
    "ted": ("2017-01-trnmted.tgz", ted),
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_published_documents_become_texts(corpus, tmp_path):
    name, make = CORPORA[corpus]
    content = make()
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / name).write_bytes(content)
    digest = f"sha256sum {hashlib.sha256(content).hexdigest()}"
    (tmp_path / "list").write_text(f"{corpus} de-en {digest} {name} https://localhost/\n")
    given = {"RAW": "raw", "ARCHIVES": "list"}
    succeed(CORPUS, corpus, "data", cwd=tmp_path, HELD_OUT="4", **given)
    again = succeed(CORPUS, corpus, "data", cwd=tmp_path, **given)
    assert again.stdout == "data exists already\n"
    for place, split in enumerate(("train", "valid", "test")):
        for lang, words in (("en", ("Sentence", "More")), ("de", ("Satz", "Mehr"))):
            text = (tmp_path / "data" / f"{split}.{lang}").read_text()
            if corpus == "ted":
                assert text == TED[place].format(lang)
            else:
                assert text == "".join(NEWS[place]).replace("{}", "%s") % (words * len(NEWS[place]))
    if corpus == "news-commentary":
        few = bash(CORPUS, corpus, "new", cwd=tmp_path, HELD_OUT="8", **given)
        assert few.returncode == 1 and "has 7 documents; HELD_OUT=8 must be smaller" in few.stderr
        assert not (tmp_path / "new").exists()


# --- a model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The module translate.py, and arguments with which it loads a small model."""
    made = write_model(tmp_path_factory.mktemp("documents"), words=[*WORDS, context.SEPARATOR])
    words = [str(made / "data"), "--path", str(made / "model.pt"), *USER_DIR, "--cpu"]
    languages = ["--source-lang", "en", "--target-lang", "de"]
    return recipe_module("document_translation", "translate"), [*words, *languages]


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
    said = f"a ...: {len(found)} translations, not 2; the last are merged or empty\n"
    assert capsys.readouterr().err == said


# --- contrastive sets


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


def test_each_translation_becomes_a_document_and_is_scored(choices, tmp_path, capsys):
    path = choices(entry(5, "cat"), entry(1), entry(2, "the", "a", distance=7))
    contrastive.write(path, str(tmp_path), f"{tmp_path}/o.en", f"{tmp_path}/o.de")
    english, german = ((tmp_path / name).read_text().split("\n\n") for name in ("o.en", "o.de"))
    assert english == [*["barks\nthe dog"] * 2, *["the cat\nsleeps"] * 3, ""]
    assert german[:2] == [". .\nsleeps", ". .\ncat"]
    assert german[2:] == ["cat .\nthe .", "cat .\nthe", "cat .\na", ""]
    capsys.readouterr()
    lines = ["-1 -1", "-3", "-2 -4", "-6", "-7"]  # the second choice is a tie
    written = [
        f"S-{n}\t{'a' if n < 2 else 'b'}\nH-{n}\t0\tx\nP-{n}\t{line}"
        for n, line in enumerate(lines)
    ]
    generated = write(tmp_path / "generated", written)
    contrastive.score(path, generated, f"{tmp_path}/found.json")
    said = capsys.readouterr()
    assert said.err == f"{path}: 2 of 3 choices have a wrong translation\n"
    assert "| all | 50.0 | 2 |" in said.out
    found = json.loads((tmp_path / "found.json").read_text())
    right = {name: group["accuracy"] for name, group in found["accuracies"].items()}
    assert right == {"all": 50, "it": 50, "it:sie": 50, "distance 1": 100, "distance >3": 0}
    assert found["scores"][0] == pytest.approx([-2 * math.log(2), -3 * math.log(2)])
    other = [*written[:-1], written[-1].replace("b", "a")]
    with pytest.raises(SystemExit, match="line 3: variants have different contexts"):
        contrastive.score(path, write(tmp_path / "other", other))
    with pytest.raises(SystemExit, match="does not have one score for each translation in"):
        contrastive.score(path, write(tmp_path / "few", written[:3]))


# --- the recipe


@pytest.mark.journeys
def test_documents_are_prepared_translated_and_choices_scored(model, choices, tmp_path):
    (tmp_path / "texts").mkdir()
    for split in ("train", "valid", "test"):
        write(tmp_path / "texts" / f"{split}.en", ["It is new.", "A lamp.", ""] * 2)
        write(tmp_path / "texts" / f"{split}.de", ["Es ist neu.", "Die.", ""] * 2)
    for said in ("", "made/data-bin exists already\n"):
        done = succeed(FOLDER / "prepare.sh", "texts", "made", cwd=tmp_path)
        assert done.stdout.endswith(said)
    assert "<brk>" in (tmp_path / "made" / "data-bin" / "dict.en.txt").read_text()
    _, (data, _, checkpoint, *_) = model  # its dictionary is not that of *made*
    shutil.copytree(data, tmp_path / "data")
    settings = ["SOURCE=en", "TARGET=de", "CONTEXT=0,1", "SIDES=both"]
    write(tmp_path / "data" / "text.settings", settings)
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
