"""examples/own_encoding: a user's own --user-dir, through fairseq's commands."""

import pytest
from support.commands import ROOT, SEARCH, SMALL, TRAINING, posenc, run, succeed

pytest_plugins = ["support.toy"]
OWN = ("--user-dir", str(ROOT / "examples" / "own_encoding"))
ENCODING = ["--position-encoding", "gaussian", "--gaussian-width", "4"]
KERNEL = ["--attention", "relu_power", "--relu-power", "3"]


def train(toy, folder, *flags):
    arch = ["--arch", "posenc_transformer", *SMALL]
    return succeed("train", toy, *OWN, "--save-dir", folder, *TRAINING, *arch, *flags)


def generate(toy, folder, *flags):
    path = folder / "checkpoint_last.pt"
    return run("generate", toy, *OWN, "--path", path, *SEARCH, *flags)


def test_an_encoding_with_flags_trains_decodes_and_takes_overrides(toy, tmp_path):
    train(toy.separate, tmp_path, *ENCODING)
    plain = generate(toy.separate, tmp_path).hypotheses()
    assert len(plain) == 24
    stretched = generate(toy.separate, tmp_path, "--model-overrides", "{'gaussian_stretch': 9.0}")
    assert stretched.status == 0 and stretched.hypotheses() != plain
    refused = generate(toy.separate, tmp_path, "--model-overrides", "{'gaussian_width': 9.0}")
    assert "gaussian_width=9.0" in refused.message() and "trained with 4.0" in refused.message()
    again = run("train", toy.separate, *OWN, "--save-dir", tmp_path, *TRAINING, "--arch",
                "posenc_transformer", *SMALL, "--position-encoding", "gaussian")  # fmt: skip
    assert "--gaussian-width 8.0" in again.message() and "another --save-dir" in again.message()


def test_an_encoding_of_ones_own_is_exported_to_ctranslate2(toy, tmp_path):
    pytest.importorskip("ctranslate2", reason="an extra: the engine of the exported models")
    train(toy.separate, tmp_path, *ENCODING)
    arguments = ("ctranslate2", tmp_path / "checkpoint_last.pt", tmp_path / "out", "--verify")
    refused = posenc("export", *arguments)
    assert "gaussian" in refused.message()
    done = posenc("export", *arguments, *OWN)
    assert (done.status, done.err) == (0, "") and "largest difference from fairseq" in done.out


def test_a_kernel_with_a_flag_trains_and_decodes(toy, tmp_path):
    train(toy.separate, tmp_path, *KERNEL, "--position-encoding", "rotary")
    assert len(generate(toy.separate, tmp_path).hypotheses()) == 24
    flags = [*KERNEL[:2], "--relu-power", "0", "--arch", "posenc_transformer"]
    message = run("train", toy.separate, *OWN, "--save-dir", tmp_path, *TRAINING, *flags).message()
    assert "--relu-power 0: must be at least 1 and at most 8" in message
