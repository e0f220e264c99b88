"""Model folders that were damaged or changed after they were packed: one line, and no output."""

import json
import os
import shutil

import pytest
import torch
from support.model_folders import write_model, write_task_model

import fairseq_posenc
from fairseq_posenc import cli
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.serving.engines import engine_for
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.translate import Hardware

pytest_plugins = ["support.packed_models"]
HEAD = "classification_heads.sentence_classification_head"


def settings_of(folder):
    return json.loads((folder / "model.json").read_text())


def copied(folder, to, with_digests=True, **changes):
    """A copy with other settings; a value is a function of the former one."""
    copy = shutil.copytree(str(folder), str(to / "copy"))
    settings = settings_of(folder)
    for name, change in changes.items():
        settings[name] = change(settings[name])
    if not with_digests:
        del settings["digests"]
    with open(os.path.join(copy, "model.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)
    return copy


def whole(path):
    """Read all that a model folder has."""
    folder = read_model_folder(path)
    if folder.export is not None:
        engine_for(folder, Hardware(), "ctranslate2")
    fairseq_posenc.from_pretrained(path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model folder with an export."""
    pytest.importorskip("ctranslate2", reason="an extra: the engine of the exported models")
    made = write_model(tmp_path_factory.mktemp("made"))
    codes = ["--subwords", "subword-nmt", "--subword-file", made / "codes"]
    out = made / "packed"
    flags = ["--data", made / "data", *codes, "--ctranslate2"]
    cli.main([str(word) for word in ("pack", made / "model.pt", out, *flags)])
    return out


def test_every_file_but_the_card_has_a_digest(exported, capsys):
    names = {
        os.path.relpath(os.path.join(where, name), str(exported))
        for where, _, files in os.walk(str(exported))
        for name in files
    }
    assert set(settings_of(exported)["digests"]) == names - {"model.json", "README.md"}
    cli.main(["pack", "--check", str(exported)])
    assert f"{len(names) - 2} files are those that were packed" in capsys.readouterr().out


def test_a_bit_of_any_file_is_missed(exported, tmp_path):
    for name in settings_of(exported)["digests"]:
        copy = copied(exported, tmp_path)
        path = os.path.join(copy, name)
        with open(path, "rb") as file:
            content = bytearray(file.read())
        content[len(content) // 2] ^= 4
        with open(path, "wb") as file:
            file.write(content)
        for read in (whole, lambda path: cli.main(["pack", "--check", path])):
            with pytest.raises(SystemExit, match=f"{name} is not the file that was packed"):
                read(copy)
        os.remove(path)
        with pytest.raises(SystemExit, match=f"{os.path.basename(name)}.* is missing"):
            cli.main(["pack", "--check", copy])
        shutil.rmtree(copy)


WRONG = {
    "a list for the text": ({"text": lambda _: []}, "damaged .text: "),
    "no search": ({"search": lambda _: None}, "damaged .search: None"),
    "no beam": ({"search": lambda s: {**s, "beam": 0}}, "damaged .beam: 0"),
    "a beam that is true": ({"search": lambda s: {**s, "beam": True}}, "damaged .beam: True"),
    "a penalty that is no number": (
        {"search": lambda s: {**s, "lenpen": float("nan")}},
        "damaged .lenpen: nan",
    ),
    "an endless penalty": (
        {"search": lambda s: {**s, "lenpen": float("inf")}},
        "damaged .lenpen: inf",
    ),
    "a task without a name": ({"task": lambda _: 3}, "damaged .task: 3"),
    "a list of digests": ({"digests": lambda _: ["a"]}, "damaged .digests: "),
    "too few labels": ({"head": lambda h: {**h, "labels": h["labels"][:2]}}, "names 2 outputs"),
    "swapped labels": (
        {"head": lambda h: {**h, "labels": h["labels"][::-1]}},
        "the labels maybe, yes, no, but label/dict.txt no, yes, maybe",
    ),
    "a label for the labels": ({"head": lambda h: {**h, "labels": "no"}}, "damaged .labels: 'no'"),
    "another head": (
        {"head": lambda h: {**h, "name": "x"}},
        "the head x, and the checkpoint has 0",
    ),
    "three bounds": ({"head": lambda h: {**h, "bounds": [0, 1, 2]}}, "damaged .bounds: "),
    "a head that is none": ({"head": lambda _: []}, "damaged .head: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings(folder_of, tmp_path, case):
    changes, message = WRONG[case]
    with pytest.raises(SystemExit, match=message) as error:
        whole(copied(folder_of("texts"), tmp_path, **changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["input0/dict.txt", "label/dict.txt", "dict.en.txt"])
@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("pipe", [True, False])
def test_a_missing_dictionary(folder_of, tmp_path, name, digests, pipe):
    folder = copied(folder_of("texts" if "/" in name else "translation"), tmp_path, digests)
    os.remove(os.path.join(folder, name))
    if pipe:
        os.mkfifo(os.path.join(folder, name))
    with pytest.raises(SystemExit, match=f"{name}, the dictionary, is missing"):
        whole(folder)


@pytest.mark.parametrize("name", ["model.json", "checkpoint.pt"])
def test_a_pipe_in_place_of_a_file(folder_of, tmp_path, name):
    folder = copied(folder_of("texts"), tmp_path)
    os.remove(os.path.join(folder, name))
    os.mkfifo(os.path.join(folder, name))
    with pytest.raises(SystemExit, match="its model.json is no file|has neither"):
        whole(folder)


def test_a_folder_without_digests_is_read(folder_of, tmp_path, capsys):
    folder = copied(folder_of("texts"), tmp_path, with_digests=False)
    whole(folder)
    cli.main(["pack", "--check", folder])
    assert "packed before there were digests" in capsys.readouterr().out


@pytest.mark.parametrize("longest", ["{}", "[]", '{"source": "x", "target": 3}', "{"])
def test_an_export_with_a_damaged_description(exported, tmp_path, longest):
    folder = copied(exported, tmp_path, with_digests=False)
    with open(os.path.join(folder, "ctranslate2", "fairseq_posenc.json"), "w") as file:
        file.write(f'{{"kind": "translation", "longest": {longest}}}')
    with pytest.raises(SystemExit, match="fairseq_posenc.json is (damaged|not JSON)"):
        engine_for(read_model_folder(folder), Hardware())


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
    words = ["pack", made / "model.pt", tmp_path / "out", "--data", made / "data"]
    words.append("--trust-subwords")
    with pytest.raises(SystemExit, match="its outputs are infinite or not a number"):
        cli.main([str(word) for word in words])
    assert not (tmp_path / "out").exists()
