"""Byte-level BPE and SentencePiece: learned by recipes, applied alike by all that read the data."""

import os
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from support.recipes import COMMON, EXAMPLES, bash, commands, error_of, recipe_module, write

from fairseq_posenc import cli
from fairseq_posenc.basics import lines as text_lines
from fairseq_posenc.serving.masked_lm import MaskedLanguageModel
from fairseq_posenc.serving.model_folder import ModelFolder, Text
from fairseq_posenc.serving.text import Preparation
from fairseq_posenc.text import tokenizer

pytest.importorskip("tokenizers", reason="byte-level BPE needs it")
byte_bpe = recipe_module("common", "byte_bpe")
spm = recipe_module("common", "spm")

LEARNED = ["The cats ran, and the cat sat.", "It's the cat's  garden; a gardener's.", ""] * 3
OTHERS = ["the Gardens", "na\u00efve \u2014 \u4f60\u597d \U0001f600", "tab\there", "</s> 3.5", ""]


@pytest.mark.parametrize("flags", [[], ["--lower-case"]])
def test_byte_level_bpe_has_the_asked_size_and_loses_nothing(tmp_path, flags):
    folder, size = str(tmp_path / "tokenizer"), 270
    learn = ["learn", "--vocabulary-size", str(size), *flags]
    byte_bpe.main([*learn, folder, write(tmp_path / "in", LEARNED)])
    (tmp_path / "dict.txt").write_text(tokenizer.dictionary(folder), encoding="utf-8")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    assert len(dictionary) - dictionary.nspecial == size
    text = Text(subwords="transformers", subword_file="tokenizer")
    model = Preparation(ModelFolder(str(tmp_path), "masked_lm", text))
    for line in LEARNED + OTHERS:
        (binarised,) = tokenizer.tokenize(folder, [line])
        assert model.source(line) == binarised.split()
        numbers = dictionary.encode_line(binarised, add_if_not_exist=False, append_eos=False)
        assert dictionary.unk() not in numbers
        wanted = line.lower() if flags else line
        assert model.text(binarised.split()) == wanted or "</s>" in line
    assert len(model.source("the cats")) < 6
    reader = SimpleNamespace(_folder=ModelFolder("", "masked_lm", text), _text=model)
    found = MaskedLanguageModel._symbols(reader, "the <mask> sat.")
    assert found == [*model.source("the"), "<mask>", *model.source(" sat.")]


def test_a_vocabulary_that_the_text_cannot_give_is_one_line(tmp_path):
    source = write(tmp_path / "in", LEARNED)
    learn = ["learn", str(tmp_path / "out"), source, "--vocabulary-size"]
    assert "no more than" in error_of(byte_bpe.main, [*learn, "5000"])
    assert "the bytes alone are 256" in error_of(byte_bpe.main, [*learn, "256"])
    assert not (tmp_path / "out").exists()


def test_carriage_returns_at_the_ends_of_lines_are_no_symbols(tmp_path):
    learn = ["learn", "--vocabulary-size", "275"]
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        text, folder = tmp_path / f"{name}.txt", str(tmp_path / name)
        text.write_bytes(end.join(LEARNED).encode() + end.encode())
        byte_bpe.main([*learn, folder, str(text)])
        cli.main(["tokenize", str(tmp_path / "unix"), str(text), f"{folder}.pieces"])
        assert list(text_lines.read_lines(text)) == LEARNED
    for name in ("{}/tokenizer.json", "{}.pieces"):
        one, two = ((tmp_path / name.format(kind)).read_bytes() for kind in ("unix", "windows"))
        assert one == two


def test_a_folder_of_other_files_is_not_replaced(tmp_path):
    source, other = write(tmp_path / "in", LEARNED), tmp_path / "runs"
    other.mkdir()
    (other / "tokenizer.json").touch()  # as in a model of transformers
    (other / "pytorch_model.bin").touch()
    learn = ["learn", "--vocabulary-size", "270"]
    for folder in (other, f"{other}/"):
        message = error_of(byte_bpe.main, [*learn, str(folder), source])
        assert f"{other}: would be replaced, and there is pytorch_model.bin in it" in message
    assert "give a new one" in error_of(byte_bpe.main, [*learn, source, source])
    other.rename(tmp_path / "new.part")
    assert "new.part: would be" in error_of(byte_bpe.main, [*learn, str(tmp_path / "new"), source])
    assert sorted(os.listdir(tmp_path / "new.part")) == ["pytorch_model.bin", "tokenizer.json"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name in ("empty", "empty/", "link", "absent/"):  # twice the same, with and without a slash
        byte_bpe.main([*learn, f"{tmp_path}/{name}", source])
        files = sorted(os.listdir(tmp_path / name))
        assert files == ["tokenizer.json", "tokenizer_config.json"]
    assert (tmp_path / "link").is_symlink() and not (tmp_path / "empty.part").exists()


def test_sentencepiece_is_the_same_in_recipes_and_model_folders(tmp_path):
    pytest.importorskip("sentencepiece", reason="an extra")
    source, model = write(tmp_path / "in", LEARNED), str(tmp_path / "sentencepiece.model")
    spm.main(["learn", "--vocabulary-size", "40", "--type", "bpe", model, source])
    text = Text(subwords="sentencepiece", subword_file="sentencepiece.model", lowercase=True)
    folder = Preparation(ModelFolder(str(tmp_path), "masked_lm", text))
    target = tmp_path / "out"
    write(tmp_path / "others", OTHERS)
    spm.main(["--lower-case", "apply", model, str(tmp_path / "others"), str(target)])
    lines = target.read_text(encoding="utf-8").split("\n")
    assert [folder.source(line) for line in OTHERS] == [line.split() for line in lines[:-1]]
    assert "--lower-case" in error_of(spm.main, ["--lower-case", "learn", model, source])


@pytest.mark.parametrize("case, flags", [("", ["--lower-case"]), ("--keep-case", [])])
def test_what_is_recorded_with_the_data_is_used_by_all(tmp_path, case, flags):
    data = tmp_path / "data"
    data.mkdir()
    (data / "text").write_text(f"lang en\nkeep-case {case}\nsubwords sentencepiece\n")
    (tmp_path / "glue" / "CoLA").mkdir(parents=True)
    given = ("glue", data, "out", "--dry-run")
    found = commands(bash(EXAMPLES / "glue" / "prepare.sh", *given, cwd=tmp_path))
    helper, kept = str(COMMON / "spm.py"), str(data / "sentencepiece.model")
    parts = [f"{tmp_path}/out/work/CoLA/{part}/input0/train" for part in ("text", "pieces")]
    assert ["python", helper, *flags, "apply", kept, *parts] in found
    assert ["cp", kept, str(data / "text"), f"{tmp_path}/out/CoLA.part"] in found
    train = EXAMPLES / "bert_pretraining" / "train.sh"
    found = commands(bash(train, "roberta", data, "--cpu", "--dry-run", cwd=tmp_path))
    (pack,) = [" ".join(words) for words in found if words[:2] == ["fairseq-posenc", "pack"]]
    assert f"--tokenizer none --subwords sentencepiece --subword-file {kept}" in pack
    assert ("--lowercase" in pack) == (not case)


def test_the_size_of_the_vocabulary_is_given_not_its_merges(tmp_path):
    prepare = EXAMPLES / "bert_pretraining" / "prepare.sh"

    def learned(*flags):
        found = commands(bash(prepare, "text", "out", *flags, "--dry-run", cwd=tmp_path))
        (words,) = [words for words in found if "learn" in words]
        return words[1].rpartition("/")[2], words[3:5]

    assert learned() == ("bpe.py", ["--vocabulary-size", "32678"])
    assert learned("--bpe-operations", "9") == ("bpe.py", ["--operations", "9"])
    assert learned("--subwords", "sentencepiece") == ("spm.py", ["--vocabulary-size", "32678"])
    assert learned("--subwords", "byte-bpe") == ("byte_bpe.py", ["--vocabulary-size", "50000"])
