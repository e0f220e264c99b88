"""Model folders: packing, refusals, translation, and cards; also the cards of exports."""

import os
import shutil
import subprocess
import sys

import pytest
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from support.commands import ROOT
from support.conversion import convert, refuses
from support.expressed import checkpoint_of
from support.model_folders import MERGES, pack, write_model, write_task_model, write_translation

from fairseq_posenc import cli
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Text

pytestmark = pytest.mark.journeys

WHY = "exported models need CTranslate2"
MOSES = ["--tokenizer", "moses", "--subwords", "subword-nmt"]


def posenc(*arguments):
    assert not cli.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a checkpoint and its data."""
    return write_model(tmp_path_factory.mktemp("model"), "--share-decoder-input-output-embed")


def packed(model, out, *flags):
    return pack(model, out, *MOSES, "--subword-file", model / "codes", *flags)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """The packed model folder of *model*, with an export."""
    pytest.importorskip("ctranslate2", reason=WHY)
    out = tmp_path_factory.mktemp("packed") / "en-de"
    scores = model / "scores.txt"
    scores.write_text("BLEU|nrefs:1 = 12.3\n")
    return packed(model, out, "--ctranslate2", "--about", "Two words.", "--scores", scores)


def test_has_what_text_needs(folder):
    names = "README.md checkpoint.pt codes ctranslate2 dict.de.txt dict.en.txt model.json"
    assert sorted(os.listdir(folder)) == names.split()
    read = read_model_folder(str(folder))
    assert read.text == Text("en", "de", "moses", False, "subword-nmt", "codes")
    assert (read.task, read.search) == ("translation", (4, 0.6))
    assert read_checkpoint(read.checkpoint)["last_optimizer_state"] is None
    card = (folder / "README.md").read_text()
    ours = load(read.checkpoint, overrides=read.overrides).model
    size = f"{sum(each.numel() for each in ours.parameters()):,} parameters"
    for expected in ("en to de", "Two words.", "BLEU|nrefs:1 = 12.3", "After 7 updates", size):
        assert expected in card
    assert "--position-encoding rotary" in card


#: Flags of ``pack``, and a pattern of the error message.
WRONG = """
--data {other} | error: /.*/model.pt: the parameters do not fit .*; give the data folder that it was
--data {empty} | has no dict.en.txt
--subword-file {empty}/none | there is no such file
--target-subword-file {empty}/none | --target-subword-file .*/none: there is no such file
--ctranslate2 --quantization int3 | --quantization int3: must be int8 or
--quantization int8 | is only for an export; also give --ctranslate2
--regression-range 0 5 | 0.0 5.0: the model is no reg
--regression-range 5 0 | 5 0: the first must be below the second
--subwords none --dash-splits --tokenizer none | --subwords none: subword-nmt, .* need --subwo
--dash-splits --tokenizer none | --dash-splits: has no effect without
"""


@pytest.mark.parametrize("flags, message", [x.split(" | ") for x in WRONG.strip().splitlines()])
def test_packs_all_or_nothing(model, tmp_path, flags, message):
    if "--ctranslate2" in flags:
        pytest.importorskip("ctranslate2", reason=WHY)
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.mkdir()
    other.mkdir()
    for lang in ("en", "de"):
        (other / f"dict.{lang}.txt").write_text("one 1\n")
    with pytest.raises(SystemExit, match=message) as error:
        packed(model, tmp_path / "out", *flags.format(empty=empty, other=other).split())
    assert str(error.value).count("\n") == 0
    assert sorted(os.listdir(tmp_path)) == ["empty", "other"]


#: The merges in the subword file, other flags, and a pattern of the error message.
SUBWORDS = {
    "those of another text": (["d o", "o g</w>"], MOSES, "file .*: 57% of the .*the, cat, sleeps"),
    "those of a longer list": ([*MERGES, "do g</w>"], MOSES, "25% of the symbols.*dog.*training"),
    "a file of another kind": (["\u2581the\t-3.5"], MOSES, "as merges of subword-nmt .*line 2"),
    "none": (None, [], "none: 14% .*do@@.*--subwords subword-nmt and its file, or --trust-sub"),
}


@pytest.mark.parametrize("case", SUBWORDS)
def test_subwords_of_another_model_are_refused(model, tmp_path, case, capsys):
    merges, flags, message = SUBWORDS[case]
    data = shutil.copytree(model / "data", tmp_path / "data")
    for lang in ("en", "de"):
        text = Dictionary.load(str(data / f"dict.{lang}.txt"))
        builder = MMapIndexedDatasetBuilder(str(data / f"train.en-de.{lang}.bin"))
        builder.add_item(text.encode_line("the do@@ g barks .", add_if_not_exist=False))
        builder.finalize(str(data / f"train.en-de.{lang}.idx"))
    if merges is not None:
        (tmp_path / "codes").write_text("\n".join(["#version: 0.2", *merges, ""]))
        flags = [*flags, "--subword-file", tmp_path / "codes"]
    words = ["pack", model / "model.pt", tmp_path / "out", "--data", data, *flags]
    with pytest.raises(SystemExit, match=message):
        posenc(*words)
    assert not (tmp_path / "out").exists() and capsys.readouterr().err == ""
    if case == "none":
        posenc(*words, "--trust-subwords")
        assert (tmp_path / "out" / "model.json").exists()


def run(folder, lines, *flags):
    """Translate in a new process; standard error ends with its time and imported packages."""
    code = (
        "import sys, time; sys.argv[0] = 'fairseq-posenc'\n"
        "from fairseq_posenc.cli import main\n"
        "main(sys.argv[1:])\n"
        "print(time.process_time(), *{'torch', 'fairseq'} & set(sys.modules), file=sys.stderr)\n"
    )
    words = [sys.executable, "-c", code, "translate", "--model", str(folder), *flags]
    text = "".join(line + "\n" for line in lines).encode()
    done = subprocess.run(words, input=text, capture_output=True, cwd=ROOT, check=True, timeout=120)
    *said, last = done.stderr.decode().splitlines()
    return done.stdout.decode().split("\n")[:-1], said, last.split()


def test_translates_without_pytorch_or_fairseq(folder):
    lines = ["The cat sleeps.", "", "dog " * 100, "\u3000 ", "The dog barks."]
    out, said, figures = run(folder, lines, "--max-length", "5", "--threads", "1")
    assert len(out) == len(lines)
    assert [bool(line) for line in out] == [True, False, False, False, True]
    assert said == [
        "line 3: the line has 200 tokens, and the model accepts 29; its translation is left empty"
    ]
    if not hasattr(pytest.importorskip("ctranslate2"), "__getattr__"):
        pytest.skip("CTranslate2 of Python 3.8 imports PyTorch itself")
    assert len(figures) == 1, f"{figures[1:]} was imported"
    assert float(figures[0]) < 2  # seconds of processor time


def test_both_engines_agree(folder, tmp_path):
    (tmp_path / "in").write_text("The cat sleeps.\tdog\nThe dog barks.\t\n")
    flags = ["--prefix", "--beam", "1", "--max-length", "4", "--input", tmp_path / "in"]
    found = []
    for engine in ("ctranslate2", "fairseq"):
        out = ["--output", tmp_path / engine, "--engine", engine]
        posenc("translate", "--model", folder, *flags, *out)
        found.append((tmp_path / engine).read_text())
    assert found[0] == found[1] and found[0].startswith("dog")
    with pytest.raises(SystemExit, match="--output .*/in: the result would overwrite its own sou"):
        posenc("translate", "--model", folder, *flags, "--output", tmp_path / "in")


def test_an_export_never_replaces_files(model, tmp_path):
    pytest.importorskip("ctranslate2", reason=WHY)
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(SystemExit, match="exists already"):
        posenc("export", "ctranslate2", model / "model.pt", tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_tokenizer_needs_its_file(tmp_path):
    model = write_task_model(tmp_path / "made", "masked_lm")
    with pytest.raises(SystemExit, match="subword-nmt, .* need --subword-file, and no others"):
        pack(model, tmp_path / "out", "--subwords", "marked-pieces")
    flags = ["--lowercase", "--tokenizer", "jieba", "--trust-subwords"]
    folder = read_model_folder(str(pack(model, tmp_path / "out", *flags)))
    assert folder.text == Text(tokenizer="jieba", lowercase=True)
    card = (tmp_path / "out/README.md").read_text()
    assert "Tokeniser: jieba; subwords: none; lower case." in card


# --- cards of exports, as the Hugging Face Hub reads them


@pytest.mark.parametrize(
    "name, model, tag",
    [
        ("hf-llama", "grouped", "text-generation"),
        ("hf-remote-code", ["--position-encoding", "rotary"], "translation"),
        ("hf-roberta", "sentences", "text-classification"),
    ],
)
def test_the_card_names_task_and_languages(name, model, tag, tmp_path):
    pytest.importorskip("safetensors", reason="exporting needs the package")
    hub = pytest.importorskip("huggingface_hub", reason="cards are read with huggingface_hub")
    make = checkpoint_of if isinstance(model, str) else write_translation
    path = make(tmp_path / "ours", *([model] if isinstance(model, str) else model))
    (tmp_path / "ppl.txt").write_text("perplexity 3.2 on the test set\n")
    given = ["--scores", tmp_path / "ppl.txt", "--about", "Words by number."]
    convert("export", name, path, tmp_path / "theirs", *given)
    card = hub.ModelCard.load(str(tmp_path / "theirs" / "README.md"))
    languages = ["en", "de"] if tag == "translation" else None
    assert (card.data.pipeline_tag, card.data.language) == (tag, languages)
    assert ("trust_remote_code=True" in card.text) == (name == "hf-remote-code")
    assert "Words by number." in card.text and "perplexity 3.2 on the test set" in card.text
    missing = tmp_path / "none.txt"
    refuses([f"--scores {missing}"], "export", name, path, tmp_path / "x", "--scores", missing)
    refuses(["--about"], "export", "onnx", path, tmp_path / "y", "--about", "Words.")
