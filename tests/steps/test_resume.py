"""A training of the recipes that was interrupted ends as if it had not been."""

import os
import shlex
import subprocess
import sys

import pytest
from support.commands import ROOT, SMALL, TRAINING, USER_DIR, programs, read

pytest_plugins = ["support.toy"]


@pytest.fixture
def recipe(toy, tmp_path):
    """Train a small model as the recipes do, in a folder, for a number of epochs."""

    def run(folder, epochs, *flags):
        words = [*USER_DIR, *TRAINING, "--arch", "transformer", *SMALL, *flags]
        # several batches of different lengths, whose order differs by epoch
        words += ["--max-epoch", epochs, "--max-tokens", 80, "--lr", 0.003]
        line = shlex.join(map(str, [folder, toy.separate, *words]))
        path = [programs(), os.path.dirname(sys.executable), os.environ["PATH"]]
        return subprocess.run(
            ["bash", "-euc", f". {ROOT}/examples/common/steps.sh\ntrain {line}"],
            cwd=tmp_path,
            env={**os.environ, "PATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )

    return run


def weights(folder):
    return read(folder / "checkpoint_last.pt")[0]


def test_a_resumed_training_equals_the_uninterrupted_one_bit_for_bit(recipe, tmp_path):
    whole = recipe("whole", 3)
    assert whole.returncode == 0, whole.stderr[-2000:]
    for epochs in (1, 2):
        assert recipe("resumed", epochs).returncode == 0
    again = recipe("resumed", 2)
    assert again.returncode == 0 and "resumed: already trained" in again.stderr
    # killed while fairseq copied the last checkpoint, and before while it wrote the second
    folder = tmp_path / "resumed"
    for name in ("checkpoint_last.pt", "checkpoint2.pt"):
        os.truncate(folder / name, (folder / name).stat().st_size // 2)
    half = (folder / "checkpoint_last.pt").read_bytes()
    (folder / "checkpoint9.pt.tmp").write_bytes(b"half")
    resumed = recipe("resumed", 3)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert resumed.stderr.count("checkpoint_last.damaged.pt; going on from checkpoint1.pt") == 1
    assert (folder / "checkpoint_last.damaged.pt").read_bytes() == half
    assert not (folder / "checkpoint9.pt.tmp").exists()
    first, second = weights(tmp_path / "whole"), weights(folder)
    assert all((value == second[name]).all() for name, value in first.items())
