"""The shell scripts of this checkout, run."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = REPO / "scripts"


def made_by_setup():
    """Whether setup.sh of this checkout made this environment, and would leave it as it is."""
    decisive = ("scripts/setup.sh", "pyproject.toml", "constraints/v100.txt")
    content = b"".join((REPO / name).read_bytes() for name in decisive) + f"{REPO}\n".encode()
    marker = Path(sys.prefix) / ".fairseq_posenc"
    return marker.is_file() and marker.read_text() == f"test {sha256(content).hexdigest()}\n"


needs_setup = pytest.mark.skipif(
    not made_by_setup(), reason="not in an environment that setup.sh made for this checkout"
)


def shell(*command, env=None, timeout=60):
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


def assert_one_line_error(result, *words):
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr
