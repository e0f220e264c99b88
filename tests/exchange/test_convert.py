"""Conversions: dictionaries, written files, refusals, and the registry of formats."""

import json
import os
import sys

import pytest
import torch
from support.conversion import OURS, SYMBOLS, convert, load, refuses, write_folder
from support.foreign_models import SOURCES

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange import FORMATS, Exporter, Flag, Importer, register_format
from fairseq_posenc.exchange.formats import ForeignModel, Format
from fairseq_posenc.models.kinds import KINDS

pytestmark = pytest.mark.properties


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "source")


@pytest.mark.parametrize(
    "symbols, words",
    [
        ([*SYMBOLS, "the"], ["'the' occurs twice", "numbers 6 and 11"]),
        ([*SYMBOLS, "<unk>"], ["'<unk>' (number 11)", "reserves"]),
        ([*SYMBOLS, "New York"], ["'New York' (number 11)", "white space"]),
        ([*SYMBOLS, "\u3000"], ["(number 11)", "white space"]),
        ([*SYMBOLS, ""], ["'' (number 11)", "is empty"]),
        ([s for s in SYMBOLS if s != "[MASK]"], ["has no '[MASK]'", "<mask>"]),
        (SYMBOLS[:-1], ["has 11 rows", "has 10 symbols"]),
    ],
)
def test_dictionaries_are_refused_by_name(tmp_path, out, symbols, words):
    source = write_folder(tmp_path / "source", symbols=symbols)
    refuses(["vocab.txt", *words], "import", "hf-roformer", source, out)


def test_other_names_of_special_symbols(tmp_path, out):
    symbols = [OURS.get(symbol, symbol) if symbol != "[MASK]" else symbol for symbol in SYMBOLS]
    source = write_folder(tmp_path / "source", symbols=symbols)
    names = {"cls_token": "<s>", "sep_token": {"content": "</s>"}, "pad_token": "<pad>"}
    settings = json.dumps({**names, "unk_token": "<unk>"})
    (source / "tokenizer_config.json").write_text(settings)
    convert("import", "hf-roformer", source, out)
    model, _ = load(out)
    theirs = load_file(source / "pytorch_model.bin")
    embedding = theirs["roformer.embeddings.word_embeddings.weight"]
    ours = model.encoder.sentence_encoder.embed_tokens.weight
    assert torch.equal(ours[0], embedding[symbols.index("<s>")])


def test_a_tokenizer_json_is_read_where_there_is_no_vocab_txt(folder, out):
    (folder / "vocab.txt").unlink()
    words = {symbol: number for number, symbol in enumerate(SYMBOLS)}
    added = [{"content": "[MASK]", "id": words.pop("[MASK]")}]
    content = {"model": {"vocab": words}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    convert("import", "hf-roformer", folder, out)
    words.pop("the")
    (folder / "tokenizer.json").write_text(json.dumps(content))
    refuses(["10 symbols", "0 to 9"], "import", "hf-roformer", folder, out)


@pytest.mark.parametrize("stop, present", [(1, []), (2, ["dict.txt"])])
def test_the_checkpoint_comes_last(folder, out, monkeypatch, stop, present):
    """An interrupted import never leaves a checkpoint without its dictionary."""
    moved = []

    def move(source, target):
        moved.append(source)
        if len(moved) == stop:
            raise KeyboardInterrupt
        os.replace(source, target)

    monkeypatch.setattr("fairseq_posenc.basics.files.shutil.move", move)
    with pytest.raises(KeyboardInterrupt):
        convert("import", "hf-roformer", folder, out)
    assert (sorted(os.listdir(out)) if out.exists() else []) == present


def test_a_wrong_import_is_found_and_not_kept(folder, out, monkeypatch):
    """``--verify`` fails if the difference is above 1e-4, and passes if it is below."""
    from fairseq_posenc.exchange.huggingface import convert as conversion

    convert("import", "hf-roformer", folder, out.parent / "right")
    model, _ = load(out.parent / "right")

    def verify_against(wrong):
        reference = ForeignModel(
            lambda x, y: model(x, segment_labels=y)[0].detach() + wrong, "another"
        )
        monkeypatch.setattr(conversion, "_reference", lambda *_: reference)
        return ("import", "hf-roformer", folder, out, "--verify")

    refuses(["largest difference", "0.0002", "0.0001"], *verify_against(2e-4))
    convert(*verify_against(5e-5))
    assert out.exists()


def test_packages_that_are_missing(folder, out, monkeypatch):
    for name in ("transformers", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    words = ["transformers", "--verify", "pip install transformers"]
    refuses(words, "import", "hf-roformer", folder, out, "--verify")
    (folder / "model.safetensors").write_bytes(b"")
    words = ["model.safetensors", "pip install safetensors"]
    refuses(words, "import", "hf-roformer", folder, out)


def test_folders_that_are_none(folder, tmp_path):
    words = [str(folder), "the result would overwrite its own source; give another name"]
    refuses(words, "import", "hf-roformer", folder, folder)
    file = tmp_path / "file"
    file.write_text("")
    refuses([str(file), "cannot be written"], "import", "hf-roformer", folder, file)
    refuses([str(file), "give the folder"], "import", "hf-roformer", file, tmp_path / "out")


# --- the registry of formats


EXPORTED = [name for name, entry in FORMATS.items() if entry.exporter]
IMPORTED = [name for name, entry in FORMATS.items() if entry.importer]


@pytest.mark.parametrize("name", IMPORTED)
def test_every_file_of_a_model_is_needed(tmp_path, out, name):
    source = SOURCES[name](tmp_path / "source")
    refuses([str(tmp_path / "absent")], "import", name, tmp_path / "absent", out)
    for path in sorted((tmp_path / "source").iterdir()):
        content = path.read_bytes()
        path.unlink()
        refuses([str(path.parent), path.name], "import", name, source, out)
        path.write_bytes(content)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("name", [*FORMATS, "absent"])
def test_the_command_line_has_what_is_registered(tmp_path, name):
    for command, known in (("import", IMPORTED), ("export", EXPORTED)):
        if name not in known:
            words = [f"{command} {name}: ", *known]
            refuses(words, command, name, tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("name", EXPORTED)
def test_flags_without_effect_are_refused_with_the_formats_that_take_them(tmp_path, name):
    flags = {"vocab": "x", "head": "x", "data": "x", "quantization": "int8", "verify-file": "x"}
    known = {n: [flag_of(flag.name)[2:] for flag in FORMATS[n].exporter.takes()] for n in EXPORTED}
    for flag in [flag for flag in flags if flag not in known[name]]:
        takers = [n for n in EXPORTED if flag in known[n]]
        words = [f"--{flag} {flags[flag]}", *takers, f"no effect on {name}"]
        refuses(words, "export", name, tmp_path / "a", tmp_path / "b", f"--{flag}", flags[flag])


@pytest.mark.parametrize("name", ["vocab", "verify", "source"])
def test_a_flag_with_the_name_of_another_is_refused(monkeypatch, tmp_path, name):
    exporter = Exporter()
    exporter.flags = (Flag(name, "something else"),)
    monkeypatch.setitem(FORMATS, "mine", Format("", exporter=exporter))
    words = [f"--{name}: ", "mine", "another format; rename it"]
    refuses(words, "export", "mine", tmp_path / "a", tmp_path / "b")


def test_registering():
    with pytest.raises(UsageError, match="format tupe: registered twice"):
        register_format("tupe", summary="", importer=Importer())
    with pytest.raises(UsageError, match="format mine: give an importer, an exporter, or both"):
        register_format("mine", summary="")
    assert "mine" not in FORMATS
    assert set(SOURCES) == set(IMPORTED)  # every import is tested
    assert len({kind.name for kind in KINDS}) == len(KINDS)
