"""--rotary-scaling of trained translation and masked language models, through the command lines."""

import re

import pytest
from commands import SMALL, TRAINING, USER_DIR, generate, read, run, succeed, train, validate

pytest_plugins = ["toy"]

YARN = {"rotary_scaling": "yarn", "rotary_scaling_factor": 4, "rotary_original_length": 8}


def overrides(**settings):
    return ["--model-overrides", str(settings)]


def warnings_in(finished):
    return re.findall(r"longer than the (\d+) tokens of training", finished.out + finished.err)


def test_generate_and_validate_scale_an_existing_checkpoint(toy, trained):
    checkpoint = trained / "checkpoint_last.pt"
    plain = generate(toy.separate, checkpoint)
    assert not warnings_in(plain)
    scaled = generate(toy.separate, checkpoint, *overrides(**YARN))
    assert scaled.hypotheses().keys() == plain.hypotheses().keys()
    assert scaled.hypotheses() != plain.hypotheses()
    losses = [
        validate(toy.separate, checkpoint, "--max-tokens", "100", *flags).entries("valid")[0]
        for flags in ([], overrides(**YARN))
    ]
    assert losses[0]["valid_loss"] != losses[1]["valid_loss"]


def test_one_warning_for_both_stacks_and_all_batches(toy, trained):
    short = overrides(rotary_original_length=4)
    run = generate(toy.separate, trained / "checkpoint_last.pt", "--batch-size", "3", *short)
    assert warnings_in(run) == ["4"]
    assert len(run.hypotheses()) == 24


def test_a_scaled_model_is_trained_and_keeps_its_flags(toy, tmp_path):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in YARN.items()]
    log = train(toy.separate, tmp_path, "--arch", "roformer_tiny", *SMALL, *flags)
    assert not warnings_in(log)
    settings = read(tmp_path / "checkpoint_last.pt")[1]
    assert {name: settings[name] for name in YARN} == YARN
    assert len(generate(toy.separate, tmp_path / "checkpoint_last.pt").hypotheses()) == 24


@pytest.mark.parametrize("scaled", [True, False])
def test_fine_tuning_may_read_longer_inputs(scaled, toy, tmp_path):
    """The scaling is no part of what a checkpoint fixes; the length of training comes from it."""
    text, labels = tmp_path / "text", tmp_path / "label"
    for name in ("train", "valid"):
        lines = (toy.text / f"{name}.src").read_text().splitlines()
        (tmp_path / f"{name}.label").write_text("".join(f"{len(x) > 14}\n" for x in lines))
        (tmp_path / f"{name}.text").write_text("\n".join(lines) + "\n")
    for suffix, folder in (("text", text), ("label", labels)):
        parts = [f for n in ("train", "valid") for f in (f"--{n}pref", tmp_path / f"{n}.{suffix}")]
        succeed("preprocess", "--only-source", *parts, "--destdir", folder)
    data = tmp_path / "data"
    data.mkdir()
    (data / "input0").symlink_to(text)
    (data / "label").symlink_to(labels)
    shape = ["--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24"]
    masked = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "12"]
    usual = ["--arch", "roformer_masked_lm_tiny", *shape, "--encoder-attention-heads", "2"]
    train(text, tmp_path / "pre", *usual, *masked, "--sample-break-mode", "none")
    flags = ["--task", "sentence_prediction", "--num-classes", "2", "--init-token", "0"]
    flags += ["--criterion", "sentence_prediction", "--max-positions", "24"]
    flags += ["--rotary-scaling", "ntk", "--rotary-scaling-factor", "2"] if scaled else []
    flags += ["--finetune-from-model", tmp_path / "pre" / "checkpoint_last.pt"]
    arguments = [*USER_DIR, "--save-dir", tmp_path / "fine", *TRAINING, "--arch"]
    finished = run("train", data, *arguments, "posenc_masked_lm", *flags)
    assert finished.status == 0, finished.err[-2000:]
    settings = read(tmp_path / "fine" / "checkpoint_last.pt")[1]
    assert settings["rotary_original_length"] == 12
    assert settings["rotary_scaling"] == ("ntk" if scaled else "none")
