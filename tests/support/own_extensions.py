"""The complete files of docs/adding.md, as a user copies them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r'^```\w+ title="([\w/.]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def files():
    """The text of each file by its path."""
    return dict(FILE.findall((ROOT / "docs" / "adding.md").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """The flag with a user-dir that has everything that the page registers."""
    folder = tmp_path_factory.mktemp("own")
    for path, text in files().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return "--user-dir", str(folder / "mine")
