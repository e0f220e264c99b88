"""A program that stands in for fairseq-train: it notes the call."""

import os

import pytest
from support.commands import programs

NOTE = '#!/usr/bin/env bash\necho "${0##*/} $*" >>"$CALLS"\n'


class Stubs:
    """The stub in a folder of its own, and what was called of it.

    Args:
        folder: to write it to.
    """

    def __init__(self, folder):
        folder.mkdir()
        self._calls = folder / "calls"
        (folder / "fairseq-train").write_text(NOTE)
        (folder / "fairseq-train").chmod(0o755)
        path = os.pathsep.join([str(folder), programs(), os.environ["PATH"]])
        self.variables = {"PATH": path, "CALLS": str(self._calls)}

    def called(self, start):
        """The calls that begin with *start*, of all since this was asked last."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [line for line in lines if line.startswith(start)]


@pytest.fixture
def stubs(tmp_path_factory):
    return Stubs(tmp_path_factory.mktemp("stubs") / "bin")
