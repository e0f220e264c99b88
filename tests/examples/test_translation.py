"""The translation recipe for any pair: the chain once, what it would run otherwise, mistakes."""

import json
import lzma
import os
import re

import pytest
import sacrebleu
from support.recipes import (
    EXAMPLES,
    assert_error,
    bash,
    commands,
    flags_of,
    recipe_module,
    succeed,
    trainings_in,
    write,
)

from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.text.preparation import Preparation

pytest.importorskip("sentencepiece", reason="the recipes need sentencepiece")

RECIPE = EXAMPLES / "translation"
corpus = recipe_module("toy", "corpus")
SIZES = {"train": 150, "valid": 9, "test": 11}
PAIR = ("--source-lang", "de", "--target-lang", "ne")


def recipe(script, *arguments, cwd, **variables):
    return bash(RECIPE / script, *arguments, cwd=cwd, **variables)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """German, and English backwards; the source of the training text compressed."""
    folder = tmp_path_factory.mktemp("texts")
    pairs = [(german, english[::-1]) for english, german in corpus.draw_pairs(170, 3)]
    pairs[-1] = ("Das kostet 5 € (日本).", ".Ω 5 stsoc tI")  # characters that train has not
    for split, size in SIZES.items():
        part, pairs = pairs[:size], pairs[size:]
        for side, lang in enumerate(("de", "ne")):
            write(folder / f"{split}.{lang}", [pair[side] for pair in part])
    packed = lzma.compress((folder / "train.de").read_bytes())
    (folder / "train.de").unlink()
    (folder / "train.de.xz").write_bytes(packed)
    return folder


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_the_chain_with_two_sets_of_pieces_of_raw_text(texts, tmp_path):
    flags = ["--vocabulary", "separate", "--byte-fallback", "--vocabulary-size", 330]
    succeed(RECIPE / "prepare.sh", texts, "out", *PAIR, *flags, "--workers", 1, cwd=tmp_path)
    data, results = tmp_path / "out" / "data-bin", tmp_path / "run" / "evaluate-test"
    assert {"de.sentencepiece.model", "ne.sentencepiece.model"} <= set(os.listdir(data))
    assert lines_of(data / "dict.de.txt") != lines_of(data / "dict.ne.txt")
    assert lines_of(data / "reference.test.ne") == lines_of(texts / "test.ne")
    size = ["--cpu", "--tokens-per-batch", 900, "--save-every", 3, "--updates", 8]
    extra = ["--log-interval", 4, "--decoder-layers", 1, "--encoder-layers", 1]
    saved = ["--save-dir", "run", *size, "--", *extra]
    succeed(RECIPE / "train.sh", "tupe_tiny", data, *saved, cwd=tmp_path)
    flags = ["--cpu", "--average", 2, "--average-by", "updates", "--", "--max-len-b", 9]
    succeed(RECIPE / "evaluate.sh", data, "run", *flags, cwd=tmp_path)
    hypotheses = lines_of(results / "hypotheses.txt")
    scores = json.loads((results / "scores.json").read_text())
    assert [entry["name"] for entry in scores] == ["sacreBLEU", "chrF2", "TER"]
    reference = [lines_of(texts / "test.ne")]
    assert scores[1]["score"] == sacrebleu.corpus_chrf(hypotheses, reference).score
    # the model folder prepares raw text, and restores it, as it was done here
    folder = read_model_folder(str(tmp_path / "run" / "model"))
    text = Preparation(folder.text, folder.path)
    sources, references = (
        [line.split() for line in lines_of(tmp_path / "out" / "subwords" / f"test.{lang}")]
        for lang in ("de", "ne")
    )
    assert list(map(text.source, lines_of(texts / "test.de"))) == sources
    assert list(map(text.target, reference[0])) == references
    assert "<0xE6>" in sources[-1] and list(map(text.restore, references)) == reference[0]
    generated = (results / "generate-test.txt").read_text(encoding="utf-8")
    best = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", generated, re.MULTILINE))
    assert hypotheses == [text.restore(best[str(index)].split()) for index in range(11)]


def dry(script, *arguments, cwd, **variables):
    return commands(recipe(script, *arguments, "--dry-run", cwd=cwd, **variables))


def prepared(texts, cwd, *flags):
    """The commands of a dry run of prepare.sh by their names."""
    found = {}
    for words in dry("prepare.sh", texts, "out", *PAIR, *flags, cwd=cwd):
        words = [os.path.basename(word) for word in words]
        key = words[1] if words[0] == "fairseq-posenc" else words[0]
        found.setdefault(key, []).append(words)
    return found


def test_subwords_of_each_kind(texts, tmp_path):
    ran = prepared(texts, tmp_path, "--byte-fallback", "--sentencepiece-model", "bpe")
    (learned,) = ran["learn-subwords"]
    assert learned[2] == "sentencepiece"
    flags = flags_of(learned)
    assert flags["--type"] == "bpe" and "--byte-fallback" in flags
    assert flags["--vocabulary-size"] == "8000" and flags["--learn-from"] == "1000000"
    assert learned[-2:] == ["train.de.xz", "train.ne"]  # raw
    assert "tokenize" not in ran and "--joined-dictionary" in flags_of(ran["fairseq-preprocess"][0])

    ran = prepared(texts, tmp_path, "--subwords", "subword-nmt", "--vocabulary", "separate")
    assert [words[-2:] for words in ran["learn-subwords"]] == [
        ["de.bpe.codes", "train.de.gz"],
        ["ne.bpe.codes", "train.ne.gz"],
    ]
    assert len(ran["tokenize"]) == 2
    assert "--joined-dictionary" not in flags_of(ran["fairseq-preprocess"][0])

    flags = ["--subwords", "none", "--vocabulary-size", "900", "--no-cleaning"]
    ran = prepared(texts, tmp_path, *flags, "--tokenizer", "none")
    assert set(ran) == {"check-pairs", "fairseq-preprocess", "cp"}
    assert flags_of(ran["fairseq-preprocess"][0])["--nwordstgt"] == "900"
    assert os.listdir(tmp_path) == []


def test_a_dry_run_of_everything_knows_what_would_be_prepared(texts, tmp_path):
    prepare = ["--vocabulary", "separate", "--tokenizer", "moses", "--beam", "7", "--cpu"]
    ran = dry("run.sh", texts, "out", "transformer", *PAIR, *prepare, cwd=tmp_path)
    found = {" ".join(words[:2]): words for words in ran}
    (training,) = trainings_in(ran)
    assert "--share-decoder-input-output-embed" in training and training["--max-epoch"] == "12"
    generation = flags_of(next(words for words in ran if words[0] == "fairseq-generate"))
    assert generation["--beam"] == "7" and "--remove-bpe" not in generation
    scored = next(flags_of(words) for words in ran if words[-1].endswith("generate-test.txt"))
    assert scored["--sentencepiece"].endswith("ne.sentencepiece.model")
    packed = flags_of(found["fairseq-posenc pack"])
    assert packed["--tokenizer"] == "moses" and packed["--beam"] == "7"
    assert packed["--subword-file"].endswith("de.sentencepiece.model")
    assert packed["--target-subword-file"] == scored["--sentencepiece"]
    assert os.listdir(tmp_path) == []


def test_documents_are_samples_with_context_and_translated_as_documents(texts, tmp_path):
    context = ["--context", "0,2", "--context-sides", "source"]
    ran = dry("run.sh", texts, "out", "transformer", *PAIR, *context, "--cpu", cwd=tmp_path)
    assert not any(words[:2] == ["fairseq-posenc", "clean"] for words in ran)
    made = [words for words in ran if words[:2] == ["fairseq-posenc", "add-context"]]
    assert [os.path.basename(words[-4]) for words in made] == ["valid.de", "test.de", "train.de.gz"]
    assert flags_of(made[0])["--context"] == "0,2" and flags_of(made[0])["--longest"] == "1022"
    packed, again = (flags_of(w) for w in ran if w[:2] == ["fairseq-posenc", "pack"])
    assert packed["--context"] == again["--context"] == "2"
    assert packed["--context-sides"] == again["--context-sides"] == "source"
    translation = next(flags_of(w) for w in ran if w[:2] == ["fairseq-posenc", "translate"])
    assert "--documents" in translation and translation["--input"].endswith("reference.test.de")
    scored = next(w for w in ran if w[:2] == ["fairseq-posenc", "script"])
    assert scored[-2] == "--documents" and scored[-1] == translation["--output"]
    for flags in (["--context-sides", "both"], ["--context", "1", "--ratio", "2"]):
        refused = recipe("prepare.sh", texts, "out", *PAIR, *flags, cwd=tmp_path)
        assert_error(refused, f"{flags[-2]}: has no effect")


def test_the_settings_of_the_data_decide_how_it_is_trained_and_scored(tmp_path):
    lines = ["SOURCE=fi", "TARGET=zh", "TOKENIZER=none", "SUBWORDS=none", "VOCABULARY=joint"]
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "text.settings", lines)
    (training,) = dry("train.sh", "arch", "data", "--cpu", cwd=tmp_path)
    flags = flags_of(training)
    assert (flags["--source-lang"], flags["--target-lang"]) == ("fi", "zh")
    assert "--share-all-embeddings" in flags and flags["--max-update"] == "100000"
    ran = dry("evaluate.sh", "data", "run", "--last-update", "9", "--comet", "m", cwd=tmp_path)
    average, generation, scored = (flags_of(words) for words in ran[:3])
    assert average["--num-update-checkpoints"] == "5"
    assert average["--checkpoint-upper-bound"] == "9"
    assert "--remove-bpe" not in generation
    assert scored["--comet"] == "m" and scored["--source"] == "data/reference.test.fi"
    assert "--tokenized-reference" not in scored and scored["--lang"] == "zh"
    write(tmp_path / "data" / "text.settings", ["PATH=/nowhere"])
    refused = recipe("train.sh", "arch", "data", "--cpu", cwd=tmp_path)
    assert_error(refused, "text.settings: PATH: unknown setting")


@pytest.mark.parametrize(
    "flags, parts",
    [
        ([*PAIR, "--target-lang", "de"], ["--target-lang de", "source"]),
        ([*PAIR, "--bpe-operations", "9"], ["--bpe-operations", "--subwords sentencepiece"]),
        ([*PAIR, "--subwords", "none", "--byte-fallback"], ["--byte-fallback", "none"]),
        ([*PAIR, "--dash-splits"], ["--dash-splits", "Moses"]),
        ([*PAIR, "--test", "newstest"], ["newstest.de: no such file, nor .gz"]),
        ([*PAIR[:3], "xx"], ["train.xx: no such file"]),
    ],
)
def test_mistakes_are_one_line(texts, tmp_path, flags, parts):
    assert_error(recipe("prepare.sh", texts, "out", *flags, cwd=tmp_path), *parts)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name, content, parts",
    [
        ("train.ne", b"gut\nschlecht \xff\n", ["train.ne: line 2: not UTF-8"]),
        ("test.de", b"only the source\n", ["test.ne: no such file"]),
    ],
)
def test_text_that_is_not_parallel_is_refused_before_any_work(tmp_path, name, content, parts):
    folder = tmp_path / "texts"
    folder.mkdir()
    for split in ("train", "valid"):
        for lang in ("de", "ne"):
            write(folder / f"{split}.{lang}", ["a b c", "d e f"])
    (folder / name).write_bytes(content)
    result = recipe("prepare.sh", folder, "out", *PAIR, cwd=tmp_path)
    # the helper names the mistake, and the script the helper
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert all(part in result.stderr for part in parts), result.stderr
    assert "sentencepiece" not in result.stderr and not (tmp_path / "out" / "data-bin").exists()


def test_fewer_epochs_than_are_averaged_are_refused(texts, tmp_path):
    result = recipe("run.sh", texts, "out", "transformer", *PAIR, "--epochs", "2", cwd=tmp_path)
    assert_error(result, "--average 5", "2 epochs")
