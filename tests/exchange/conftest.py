"""Fixtures of the conversions."""

import pytest
from support.conversion import transformers

__all__ = ["out", "transformers"]


@pytest.fixture
def out(tmp_path):
    """The folder that a conversion writes, which does not exist yet."""
    return tmp_path / "out"
