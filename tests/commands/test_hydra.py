"""The shipped configuration for fairseq-hydra-train."""

import os

import pytest
from support.commands import ROOT, USER_DIR, Command, generate, read, succeed, train

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

# what a test has to change, for its size
QUICK = ["common.cpu=true", "dataset.num_workers=0", "optimization.max_epoch=1"]


def hydra_train(data, folder, *overrides):
    """Train into *folder* with the shipped file."""
    config = ["--config-dir", ROOT / "examples" / "hydra", "--config-name", "roformer"]
    paths = [f"common.user_dir={USER_DIR[1]}", f"task.data={data}"]
    paths += [f"checkpoint.save_dir={folder / 'checkpoints'}", f"hydra.run.dir={folder}"]
    return succeed("hydra_train", *config, *paths, *QUICK, *overrides)


def test_the_plug_in_is_found_in_the_current_folder_and_another_file_is_not(
    toy, tmp_path, monkeypatch
):
    """Hydra takes any --config-name, as fairseq registers the one that it is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairseq_posenc").symlink_to(ROOT / "fairseq_posenc")
    config = ["--config-dir", ROOT / "examples" / "hydra", "--config-name"]
    data = [f"task.data={toy.separate}", "checkpoint.no_save=true", *QUICK]
    succeed("hydra_train", *config, "roformer", *data)
    other = [*config, "roformr", "common.user_dir=fairseq_posenc", "hydra.run.dir=."]
    message = Command("fairseq_cli.hydra_train", other).finish().message()
    assert "task._name: missing; is --config-name the name of a file" in message


def test_jobs_of_a_multirun_have_a_folder_each_beside_each_other(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = ["-m", "--config-dir", ROOT / "examples" / "hydra", "--config-name", "roformer"]
    paths = [f"common.user_dir={USER_DIR[1]}", f"task.data={os.path.relpath(toy.separate)}"]
    swept = ["model.position_encoding=learned,t5", "model.encoder_embed_dim=16"]
    swept += ["checkpoint.save_dir=run/${model.position_encoding}"]
    succeed("hydra_train", *config, *paths, *QUICK, *swept)
    for encoding in ("learned", "t5"):
        parameters, settings = read(tmp_path / "run" / encoding / "checkpoint_last.pt")
        assert settings["position_encoding"] == encoding
        assert ("encoder.embed_positions.weight" in parameters) == (encoding == "learned")


def checkpoint_of(data, folder, *overrides):
    hydra_train(data, folder, *overrides)
    return folder / "checkpoints" / "checkpoint_last.pt"


def test_the_architecture_keeps_its_defaults(toy, tmp_path):
    checkpoint = checkpoint_of(toy.separate, tmp_path)
    parameters, settings = read(checkpoint)
    train(toy.separate, tmp_path / "plain", "--arch", "roformer_tiny")
    expected, plain = read(tmp_path / "plain" / "checkpoint_last.pt")
    assert {k: v.shape for k, v in parameters.items()} == {k: v.shape for k, v in expected.items()}
    assert settings["position_encoding"] == "rotary"
    assert {k: v for k, v in settings.items() if k in plain} == {k: plain[k] for k in settings}
    assert len(generate(toy.separate, checkpoint).hypotheses()) == 24


def test_the_command_line_overrides_the_file(toy, tmp_path):
    listed = ["model.encoder_layers=3", "model.rotary_base=500", "model.encoder_embed_dim=32"]
    checkpoint = checkpoint_of(toy.separate, tmp_path, *listed, "+model.decoder_ffn_embed_dim=48")
    parameters, settings = read(checkpoint)
    assert settings["rotary_base"] == 500
    assert parameters["encoder.layers.2.fc1.weight"].shape == (512, 32)
    assert parameters["decoder.layers.1.fc1.weight"].shape == (48, 32)
    assert settings["encoder_attention_heads"] == 4  # of roformer_tiny still
