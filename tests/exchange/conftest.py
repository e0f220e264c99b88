"""Fixtures for conversions: all tests share one model for each row of EXPRESSED."""

import contextlib
import io
import json
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from support.conversion import convert, transformers
from support.expressed import EXPRESSED, checkpoint_of, table_of

__all__ = ["made", "out", "transformers"]


@pytest.fixture
def out(tmp_path):
    """The folder that a conversion writes, which does not exist yet."""
    return tmp_path / "out"


@pytest.fixture(scope="session")
def made(once):
    """A function that maps a row's name to its checkpoint and its verified export."""
    pytest.importorskip("safetensors", reason="the weights are written with it")

    def get(name):
        row = EXPRESSED[name]
        first = [*table_of(row.target).architectures][0]
        known = find_spec("transformers") and hasattr(import_module("transformers"), first)

        def fill(folder):
            path, theirs = checkpoint_of(folder / "ours", name), folder / "theirs"
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                convert("export", row.target, path, theirs, *["--verify"] * bool(known))
            (architecture,) = json.loads((theirs / "config.json").read_text())["architectures"]
            if known:
                line = f"largest difference from {architecture} of transformers: "
                assert float(printed.getvalue().split(line)[1].split()[0]) < 3e-5

        folder = once(f"exported-{name}", fill)
        path, theirs = folder / "ours" / "checkpoint.pt", folder / "theirs"
        return SimpleNamespace(row=row, path=path, theirs=theirs, known=known)

    return get
