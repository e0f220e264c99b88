"""Mistakes on the command lines of recipes: one line each, and nothing is written.

Each line of mistakes.txt is a script with its arguments, after variables of the environment if it
has any, and parts of the message.  It starts in a folder with ``raw/RTE``, ``raw/TNEWS`` and
``empty``.
"""

import re
import shlex
from pathlib import Path

import pytest
from support.lists import rows_of
from support.recipes import EXAMPLES, assert_error, bash

CASES = rows_of(Path(__file__).with_name("mistakes.txt"))


@pytest.mark.parametrize("line, parts", [(line, parts) for line, *parts in CASES])
def test_mistakes_are_one_line(line, parts, tmp_path):
    for name in ("raw/RTE", "raw/TNEWS", "empty"):
        (tmp_path / name).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    words = shlex.split(line)
    given = [word for word in words if re.match("[A-Z_]+=", word)]
    script, *arguments = words[len(given) :]
    variables = dict(word.split("=", 1) for word in given)
    assert_error(bash(EXAMPLES / script, *arguments, cwd=tmp_path, **variables), *parts)
    assert sorted(tmp_path.rglob("*")) == before
