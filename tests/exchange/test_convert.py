"""Conversions: the dictionary, what is written and what is not, and what is refused."""

import json
import os
import sys

import pytest
import torch
from support.conversion import SYMBOLS, convert, load, refuses, write_folder
from support.foreign_models import OURS

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange import reader as vocabularies
from fairseq_posenc.exchange.formats import ForeignModel


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "source")


class TestDictionary:
    def test_reading_it_back(self, tmp_path):
        path = tmp_path / "dict.txt"
        path.write_text("a 3\nb 2\n")
        assert read_dictionary(str(path)).symbols == [*vocabularies.LEADING, "a", "b", "<mask>"]
        path.write_text("no count\n")
        with pytest.raises(UsageError, match="dict.txt: cannot be read as a fairseq dictionary"):
            read_dictionary(str(path))

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
    def test_a_checkpoint_of_ours_and_its_dictionary(self, folder, out):
        convert("import", "hf-roformer", folder, out)
        assert sorted(os.listdir(out)) == ["checkpoint.pt", "dict.txt"]
        model, symbols = load(out)
        theirs = load_file(folder / "pytorch_model.bin")
        embedding = theirs["roformer.embeddings.word_embeddings.weight"]
        ours = model.encoder.sentence_encoder.embed_tokens.weight
        for name, number in (("公园", symbols.index("公园")), ("[CLS]", 0), ("[MASK]", 10)):
            assert torch.equal(ours[number], embedding[SYMBOLS.index(name)])
        assert symbols.index("<mask>") == 10
        cfg = load_file(out / "checkpoint.pt")["cfg"]
        assert (cfg["task"]["_name"], cfg["task"]["data"]) == ("masked_lm", str(out))
        assert model.encoder.lm_head.weight is ours
        stored = load_file(out / "checkpoint.pt")["model"]
        names = ("encoder.lm_head.weight", "encoder.sentence_encoder.embed_tokens.weight")
        assert len({stored[name].data_ptr() for name in names}) == 1  # and stored once
        assert torch.equal(
            model.encoder.lm_head.bias[3], theirs["cls.predictions.bias"][SYMBOLS.index("[UNK]")]
        )

    def test_files_that_were_there_are_replaced_and_others_left(self, folder, out):
        out.mkdir()
        (out / "checkpoint.pt").write_text("old")
        (out / "notes").write_text("mine")
        convert("import", "hf-roformer", folder, out)
        assert load_file(out / "checkpoint.pt")["model"]
        assert sorted(os.listdir(out)) == ["checkpoint.pt", "dict.txt", "notes"]

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
