"""Mistakes that need more than a line of hostile_commands.txt: one line each, and no output."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import TRAINING, USER_DIR, Finished

pytest_plugins = ["support.toy"]


def test_installed_command_and_user_dir_with_a_trailing_slash(toy, tmp_path):
    """Run a command in a process of its own, started as a user starts it."""
    command = Path(sys.executable).with_name("fairseq-train")
    if not command.exists():
        pytest.skip("fairseq's commands are not installed beside this Python")
    arguments = [toy.separate, "--user-dir", USER_DIR[1] + "/", "--save-dir", tmp_path / "none"]
    odd = ["--arch", "roformer_tiny", "--encoder-embed-dim", "20"]
    words = [str(word) for word in (command, *arguments, *TRAINING, *odd)]
    process = subprocess.run(words, capture_output=True, text=True)
    finished = Finished(process.returncode, process.stdout, process.stderr)
    assert "head size 5 of the encoder is odd" in finished.message()
    assert not (tmp_path / "none").exists()
