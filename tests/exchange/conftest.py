"""Fixtures of the conversions."""

import pytest


@pytest.fixture
def out(tmp_path):
    """The folder that a conversion writes, which does not exist yet."""
    return tmp_path / "out"
