"""``from_pretrained`` and ``predict``: tables, calls and folders that are refused in one line."""

import json
import shutil

import pytest
import torch

import fairseq_posenc
from fairseq_posenc import cli

pytest_plugins = ["support.packed_models"]


WRONG_TABLES = {
    "another family": ("language_modeling", b"", [], "holds a language model; predict needs a cl"),
    "no classifier": ("masked_lm", b"", [], "without a classification head"),
    "not UTF-8": ("texts", b"cat\n\xff\n", [], "in.tsv: line 2: not UTF-8 (byte 1"),
    "a short line": ("pairs", b"a\tb\nc\n", [], "line 2 of the table: has no column 2"),
    "no such name": ("texts", b"a\tb\n", ["--header", "--columns", "c"], "no column 'c', but a, b"),
    "a name without header": ("texts", b"a\n", ["--columns", "a"], "for names, give --header"),
    "column 0": ("texts", b"a\n", ["--columns", "0"], "'0' is no number from 1 on"),
    "one text for a pair": ("pairs", b"a\n", ["--columns", "1"], "was trained on 2 texts"),
    "an absent table": ("texts", None, [], "in.tsv: cannot be read (No such file"),
    "no tokens": ("texts", b"a\n", ["--max-tokens", "0"], "--max-tokens 0: must be at least 1"),
}


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_wrong_tables_are_one_line_and_write_nothing(case, folder_of, tmp_path):
    name, table, flags, message = WRONG_TABLES[case]
    if table is not None:
        (tmp_path / "in.tsv").write_bytes(table)
    flags = ["--input", tmp_path / "in.tsv", "--output", tmp_path / "out", *flags]
    with pytest.raises(SystemExit) as error:
        cli.main([str(word) for word in ("predict", "--model", folder_of(name), *flags)])
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


WRONG_CALLS = {
    "a text for a list": ("language_modeling", lambda m: m.score("cat"), "takes a list of texts"),
    "no text": ("texts", lambda m: m.predict(["cat", None]), "element 1 of the list is None"),
    "lists of two lengths": ("translation", lambda m: m.score(["cat"], []), "1 sources and 0 targ"),
    "a pair for a text": (
        "translation",
        lambda m: m.translate([("cat", "dog")]),
        "element 0 of the list is not 1 texts",
    ),
    "a text for a continuation": (
        "language_modeling",
        lambda m: m.score_continuations(["ab"]),
        "element 0 of the list is not 2 texts",
    ),
    "no beam": ("translation", lambda m: m.translate(["cat"], beam=0), "beam 0: must be at least"),
    "a long text": ("language_modeling", lambda m: m.sample("cat " * 40), "has 41 tokens, and the"),
    "a long target": ("translation", lambda m: m.score(["cat"], ["cat " * 2000]), "2001 tokens"),
    "no mask": ("masked_lm", lambda m: m.fill_mask("cat"), "has 0 times <mask>"),
    "two masks": ("masked_lm", lambda m: m.fill_mask("<mask> <mask>"), "has 2 times <mask>"),
    "no head": ("masked_lm", lambda m: m.predict(["cat"]), "predict needs a classifier"),
    "no pair": ("pairs", lambda m: m.predict(["cat"]), "example 0 of the list has 1 texts, and"),
    "a tuned head": ("texts", lambda m: m.fill_mask("<mask>"), "fine-tuned as a classifier"),
    "temperature 0": ("language_modeling", lambda m: m.sample(temperature=0), "must be above 0"),
    "two limits": ("language_modeling", lambda m: m.sample(top_k=1, top_p=0.5), "one of the two"),
    "top_p 2": ("language_modeling", lambda m: m.sample(top_p=2), "top_p 2: must be above 0 and"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_wrong_calls_are_one_line(case, loaded):
    name, call, message = WRONG_CALLS[case]
    with pytest.raises(ValueError) as error:
        call(loaded(name))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["foo", "cpu:x", "meta", "cuda:99", None])
def test_a_device_that_cannot_be_used_is_one_line(device, folder_of):
    with pytest.raises(ValueError, match=f"device {device}: cannot be used here .*cpu works$"):
        fairseq_posenc.from_pretrained(folder_of("masked_lm"), device=device)


def test_a_device_may_be_pytorchs_own(folder_of):
    model = fairseq_posenc.from_pretrained(folder_of("masked_lm"), device=torch.device("cpu"))
    assert model.fill_mask("the <mask>", top_k=1)


def test_wrong_folders_are_one_line(folder_of, tmp_path):
    def refused(path, message):
        with pytest.raises(ValueError) as error:
            fairseq_posenc.from_pretrained(path)
        assert message in str(error.value) and "\n" not in str(error.value)

    refused(tmp_path, "model.json cannot be read")
    copy = shutil.copytree(folder_of("masked_lm"), tmp_path / "copy")
    settings = json.loads((copy / "model.json").read_text())
    settings["text"].update(subwords="subword-nmt", subword_file="codes")
    (copy / "model.json").write_text(json.dumps(settings))
    refused(copy, "codes, the subwords, is missing")
    settings.update(task="denoising", text={})
    (copy / "model.json").write_text(json.dumps(settings))
    refused(copy, "holds a model of --task denoising")
