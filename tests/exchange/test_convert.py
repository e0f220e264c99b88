"""Conversions: the dictionary, what is written, what is refused, and the registry of formats."""

import json
import os
import sys

import pytest
import torch
from support.conversion import SYMBOLS, convert, load, refuses, write_folder
from support.foreign_models import OURS, SOURCES, trained
from support.translations import write_translation

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange import FORMATS, Exporter, Flag, Importer, register_format
from fairseq_posenc.exchange.formats import ForeignModel, Format
from fairseq_posenc.models.kinds import CAUSAL, KINDS, MASKED, TRANSLATION


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "source")


class TestDictionary:
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
    def test_refused_by_name(self, tmp_path, out, symbols, words):
        source = write_folder(tmp_path / "source", symbols=symbols)
        refuses(["vocab.txt", *words], "import", "hf-roformer", source, out)

    def test_other_names_of_special_symbols(self, tmp_path, out):
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

    def test_tokenizer_json(self, folder, out):
        (folder / "vocab.txt").unlink()
        refuses(["neither vocab.txt nor tokenizer.json"], "import", "hf-roformer", folder, out)
        words = {symbol: number for number, symbol in enumerate(SYMBOLS)}
        added = [{"content": "[MASK]", "id": words.pop("[MASK]")}]
        content = {"model": {"vocab": words}, "added_tokens": added}
        (folder / "tokenizer.json").write_text(json.dumps(content))
        convert("import", "hf-roformer", folder, out)
        words.pop("the")
        (folder / "tokenizer.json").write_text(json.dumps(content))
        refuses(["10 symbols", "0 to 9"], "import", "hf-roformer", folder, out)


class TestWhatIsWritten:
    def test_failure_leaves_everything_as_it_was(self, folder, out, monkeypatch):
        out.mkdir()
        (out / "dict.txt").write_text("old")

        def full(*_):
            raise UsageError("checkpoint.pt: cannot be written (No space left on device)")

        monkeypatch.setattr("fairseq_posenc.exchange.transfer.write_checkpoint", full)
        refuses(["No space left"], "import", "hf-roformer", folder, out)
        assert os.listdir(out) == ["dict.txt"]
        assert (out / "dict.txt").read_text() == "old"

    @pytest.mark.parametrize("stop, present", [(1, []), (2, ["dict.txt"])])
    def test_the_checkpoint_comes_last(self, folder, out, monkeypatch, stop, present):
        """Wherever an import is interrupted, there is no checkpoint without its dictionary."""
        moved = []

        def move(source, target):
            moved.append(source)
            if len(moved) == stop:
                raise KeyboardInterrupt
            os.replace(source, target)

        monkeypatch.setattr("fairseq_posenc.exchange.transfer.shutil.move", move)
        with pytest.raises(KeyboardInterrupt):
            convert("import", "hf-roformer", folder, out)
        assert (sorted(os.listdir(out)) if out.exists() else []) == present

    def test_a_wrong_import_is_found_and_not_kept(self, folder, out, monkeypatch):
        """Above 1e-4 --verify fails; just below it passes."""
        from fairseq_posenc.exchange.huggingface import convert as conversion

        for wrong, fails in ((2e-4, True), (5e-5, False)):

            def logits(tokens, segments, wrong=wrong):
                model, _ = load(out.parent / "right")
                return model(tokens, segments)[0].detach() + wrong

            convert("import", "hf-roformer", folder, out.parent / "right")
            foreign = ForeignModel(logits, "another implementation")
            monkeypatch.setattr(conversion, "_reference", lambda *_, foreign=foreign: foreign)
            arguments = ("import", "hf-roformer", folder, out, "--verify")
            if fails:
                refuses(["largest difference", "0.0002", "0.0001"], *arguments)
            else:
                convert(*arguments)
                assert out.exists()


class TestRefused:
    def test_packages_that_are_missing(self, folder, out, monkeypatch):
        for name in ("transformers", "safetensors.torch"):
            monkeypatch.setitem(sys.modules, name, None)
        words = ["transformers", "--verify", "pip install transformers"]
        refuses(words, "import", "hf-roformer", folder, out, "--verify")
        (folder / "model.safetensors").write_bytes(b"")
        words = ["model.safetensors", "pip install safetensors"]
        refuses(words, "import", "hf-roformer", folder, out)

    def test_folders(self, folder, tmp_path):
        words = [str(folder), "is what the result is made from; give another name"]
        refuses(words, "import", "hf-roformer", folder, folder)
        file = tmp_path / "file"
        file.write_text("")
        refuses([str(file), "cannot be written"], "import", "hf-roformer", folder, file)
        refuses([str(file), "give the folder"], "import", "hf-roformer", file, tmp_path / "out")
        words = [str(tmp_path / "none"), "config.json"]
        refuses(words, "import", "hf-roformer", tmp_path / "none", tmp_path / "out")

    def test_export_without_its_dictionary(self, folder, tmp_path, out):
        convert("import", "hf-roformer", folder, out)
        lines = (out / "dict.txt").read_text().splitlines(keepends=True)
        (out / "dict.txt").unlink()
        checkpoint = out / "checkpoint.pt"
        words = ["dict.txt", "--vocab"]
        refuses(words, "export", "hf-roformer", checkpoint, tmp_path / "back")
        other = tmp_path / "other.txt"
        other.write_text("".join(lines[:-1]))
        words = ["11 token embeddings", "other.txt", "make 10"]
        refuses(words, "export", "hf-roformer", checkpoint, tmp_path / "back", "--vocab", other)
        other.write_text("no count\n")
        words = ["other.txt: cannot be read as a fairseq dictionary"]
        refuses(words, "export", "hf-roformer", checkpoint, tmp_path / "back", "--vocab", other)


# --- the registry of formats


EXPORTED = [name for name, entry in FORMATS.items() if entry.exporter]
IMPORTED = [name for name, entry in FORMATS.items() if entry.importer]


@pytest.fixture(scope="module")
def inexpressible(tmp_path_factory):
    """Models that no other toolkit has, one of each kind, as their formats differ."""
    folder = tmp_path_factory.mktemp("formats")
    flags = {"position_encoding": "rotary", "max_target_positions": 40, "decoder_layers": 1}
    lm = trained(folder / "lm", kind=CAUSAL, attention="elu", **flags)
    flags = ["--position-encoding", "sinusoidal", "--attention", "elu"]
    return {
        MASKED.name: trained(folder / "ours", attention="elu"),
        CAUSAL.name: lm,
        TRANSLATION.name: write_translation(folder / "translation", *flags),
    }


@pytest.mark.parametrize("name", EXPORTED)
def test_every_export_refuses_what_it_cannot_express(inexpressible, tmp_path, name):
    package = "safetensors" if name.startswith("hf-") else name
    pytest.importorskip(package, reason="an extra")
    table = getattr(FORMATS[name].importer, "source", None)
    usual = TRANSLATION if name == "hf-remote-code" else MASKED
    model = inexpressible[(table.kind if table else usual).name]
    refuses([str(model), "--attention elu"], "export", name, model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", IMPORTED)
def test_every_import_refuses_what_is_not_there(tmp_path, name):
    refuses([str(tmp_path / "absent")], "import", name, tmp_path / "absent", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_import_is_tested():
    assert set(SOURCES) == set(IMPORTED)


@pytest.mark.parametrize("name", IMPORTED)
def test_half_precision_becomes_float32(tmp_path, out, name):
    source = SOURCES[name](tmp_path / "source")
    path = next(path for path in (tmp_path / "source").iterdir() if path.suffix in (".bin", ".pt"))
    content = load_file(path)
    tensors = content.get("model", content)
    tensors.update({key: value.half() for key, value in tensors.items()})
    torch.save(content, path)
    convert("import", name, source, out)
    whole = load_file(out / "checkpoint.pt")["model"]
    assert {value.dtype for value in whole.values()} == {torch.float32}
    assert all(torch.equal(value, value.half().float()) for value in whole.values())


@pytest.mark.parametrize("name", IMPORTED)
def test_every_file_of_a_model_is_needed(tmp_path, out, name):
    source = SOURCES[name](tmp_path / "source")
    for path in sorted((tmp_path / "source").iterdir()):
        content = path.read_bytes()
        path.unlink()
        refuses([str(path.parent), path.name], "import", name, source, out)
        path.write_bytes(content)


@pytest.mark.parametrize("command, known", [("import", IMPORTED), ("export", EXPORTED)])
@pytest.mark.parametrize("name", [*FORMATS, "absent"])
def test_the_command_line_has_what_is_registered(tmp_path, command, known, name):
    if name not in known:
        refuses([f"{command} {name}: ", *known], command, name, tmp_path / "a", tmp_path / "b")


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
    words = [f"--{name}: ", "mine", "give it another name"]
    refuses(words, "export", "mine", tmp_path / "a", tmp_path / "b")


def test_registering():
    with pytest.raises(UsageError, match="format tupe: registered twice"):
        register_format("tupe", summary="", importer=Importer())
    with pytest.raises(UsageError, match="format mine: give an importer, an exporter, or both"):
        register_format("mine", summary="")
    assert "mine" not in FORMATS
    assert len({kind.name for kind in KINDS}) == len(KINDS)
