"""Model folders that were damaged or changed after packing are refused in one line."""

import functools
import json
import os
import shutil

import pytest
import torch
from support.lists import rows_of
from support.model_folders import pack, write_model, write_task_model

import fairseq_posenc
from fairseq_posenc import cli
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.serving.engines import engine_for
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.translate import Hardware

pytest_plugins = ["support.packed_models"]
pytestmark = pytest.mark.refusals
HEAD = "classification_heads.sentence_classification_head"


def settings_of(folder):
    return json.loads((folder / "model.json").read_text())


def without_digests(settings):
    del settings["digests"]


def copied(folder, to, change=lambda settings: None):
    copy, settings = shutil.copytree(folder, to / "copy"), settings_of(folder)
    change(settings)
    (copy / "model.json").write_text(json.dumps(settings))
    return copy


def whole(path):
    folder = read_model_folder(str(path))
    if folder.export is not None:
        engine_for(folder, Hardware(), "ctranslate2")
    fairseq_posenc.from_pretrained(str(path))


def check(path):
    cli.main(["pack", "--check", str(path)])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("ctranslate2", reason="exported models need CTranslate2")
    made = write_model(tmp_path_factory.mktemp("made"))
    codes = ["--subwords", "subword-nmt", "--subword-file", made / "codes"]
    return pack(made, made / "packed", *codes, "--ctranslate2")


def test_every_file_but_the_card_has_a_digest(exported, capsys):
    files = [path for path in exported.rglob("*") if path.is_file()]
    names = {str(path.relative_to(exported)) for path in files}
    assert set(settings_of(exported)["digests"]) == names - {"model.json", "README.md"}
    check(exported)
    assert f"{len(names) - 2} files are unchanged since they were packed" in capsys.readouterr().out


def test_a_bit_of_any_file_is_missed(exported, tmp_path):
    for name in settings_of(exported)["digests"]:
        copy = copied(exported, tmp_path)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 4
        (copy / name).write_bytes(content)
        for read in (whole, check):
            with pytest.raises(SystemExit, match=f"{name} has changed since it was packed"):
                read(copy)
        (copy / name).unlink()
        with pytest.raises(SystemExit, match=f"{os.path.basename(name)}.* is missing"):
            check(copy)
        shutil.rmtree(copy)


@pytest.mark.parametrize("change, message", rows_of("damaged_settings.txt"))
def test_wrong_settings(change, message, folder_of, tmp_path):
    """A line of damaged_settings.txt has an entry of model.json, a value, and a pattern."""
    names, _, value = change.partition(" = ")
    *outer, last = names.split(".")

    def changed(settings):
        inner = functools.reduce(dict.__getitem__, outer, settings)
        inner[last] = json.loads(value)

    with pytest.raises(SystemExit, match=message) as error:
        whole(copied(folder_of("texts"), tmp_path, changed))
    assert "\n" not in str(error.value)


def test_settings_that_are_none(tmp_path):
    for content in ("{", "[]", '{"format": 1}', None):
        if content is not None:
            (tmp_path / "model.json").write_text(content)
        else:
            (tmp_path / "model.json").unlink()
        said = "is not JSON|holds no JSON object|damaged|model.json cannot be read"
        with pytest.raises(SystemExit, match=said) as error:
            fairseq_posenc.from_pretrained(tmp_path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["input0/dict.txt", "label/dict.txt", "dict.en.txt"])
def test_a_missing_dictionary_of_a_folder_without_digests(folder_of, tmp_path, name, capsys):
    made = folder_of("texts" if "/" in name else "translation")
    folder = copied(made, tmp_path, without_digests)
    check(folder)
    assert "complete; packed without digests" in capsys.readouterr().out
    for damage in (os.remove, os.mkfifo):
        damage(folder / name)
        with pytest.raises(SystemExit, match=f"{name} is missing"):
            whole(folder)


def test_engines_that_a_folder_has_not(folder_of):
    with pytest.raises(SystemExit, match="holds a model of --task sentence_prediction; give"):
        engine_for(read_model_folder(str(folder_of("texts"))), Hardware())
    folder = read_model_folder(str(folder_of("translation")))
    with pytest.raises(SystemExit, match="--compute-type int8: is for --engine ctranslate2"):
        engine_for(folder, Hardware(compute_type="int8"))


def test_a_model_of_documents_of_version_0_2_translates_sentences_and_says_so(
    folder_of, tmp_path, capsys
):
    (tmp_path / "in").write_text("the cat\nsleeps\n")
    said = []
    for context in (None, {"sentences": 2, "sides": "both"}):
        change = functools.partial(dict.update, context=context)
        folder = copied(folder_of("translation"), tmp_path / str(len(said)), change)
        out = tmp_path / "out"
        words = ["translate", "--model", folder, "--input", tmp_path / "in", "--output", out]
        cli.main([str(word) for word in words])
        said.append((out.read_text(), capsys.readouterr().err))
    (before, quiet), (text, warned) = said
    assert text == before and text.count("\n") == 2
    assert "context" not in quiet and warned.count("was packed with --context") == 1


@pytest.mark.parametrize("longest", ["{}", "[]", '{"source": "x", "target": 3}', "{"])
def test_an_export_with_a_damaged_description(exported, tmp_path, longest):
    folder = copied(exported, tmp_path, without_digests)
    description = f'{{"kind": "translation", "longest": {longest}}}'
    (folder / "ctranslate2" / "fairseq_posenc.json").write_text(description)
    with pytest.raises(SystemExit, match="fairseq_posenc.json (cannot be loaded|is not JSON)"):
        engine_for(read_model_folder(str(folder)), Hardware())


@pytest.mark.parametrize(
    "write, large",
    [
        (write_model, {"decoder.output_projection.weight": 3e38}),
        (
            lambda folder: write_task_model(folder, "sentence_prediction"),
            {f"{HEAD}.out_proj.weight": 3e38, f"{HEAD}.dense.bias": 9},  # the features are 1
        ),
    ],
    ids=["translation", "classifier"],
)
def test_weights_whose_outputs_overflow_are_not_packed(write, large, tmp_path):
    made = write(tmp_path / "made")
    state = read_checkpoint(made / "model.pt")
    for name, value in large.items():
        state["model"][name].fill_(value)
    write_checkpoint(state, made / "model.pt")
    assert all(torch.isfinite(value).all() for value in state["model"].values())
    with pytest.raises(SystemExit, match="its outputs are infinite or not a number"):
        pack(made, tmp_path / "out", "--trust-subwords")
    assert not (tmp_path / "out").exists()
