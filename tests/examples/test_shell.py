"""The shell of the recipes: their options."""

import re

import pytest
from support.recipes import COMMON, EXAMPLES, bash

from fairseq_posenc.steps.options import declaration_of

PROGRAMS = sorted(
    path
    for path in EXAMPLES.glob("*/*.sh")
    if path.parent != COMMON and "common/steps.sh" in path.read_text()
    if "../reading/finetune.sh" not in path.read_text()  # of an earlier form
)


def functions_of(text):
    """The shell that a script sources, and what that sources."""
    names = re.findall(r'^\. "\$(?:COMMON|\(dirname "\$0"\)/\.\./common)/(\w+\.sh)"', text, re.M)
    sourced = [(COMMON / name).read_text() for name in names]
    return "".join([*sourced, *map(functions_of, sourced)])


@pytest.mark.parametrize("script", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_help_is_printed_and_every_option_is_read(tmp_path, script):
    result = bash(script, "--help", cwd=tmp_path)
    assert result.returncode == 0 and script.name in result.stdout
    head, _, text = script.read_text().partition("\nset -euo pipefail\n")
    if "ARGUMENTS" in text or 'parse "$@"' not in text:  # it hands all options on
        return
    shared = functions_of(text)
    locking = re.findall(r"^(\w+)\(\) \{\n(?:[ \t].*\n|\n)*?[ \t]+alone ", shared, re.M)
    for step in re.finditer(r"^(step|train|tune) ", text, re.M):
        assert re.search(rf"^ *({'|'.join(['alone', *locking])})\b", text[: step.start()], re.M)
    # a mistake on the command line is found before anything happens
    assert not re.search(r"^ *(alone|run|step|train|mkdir)\b", text.partition("parse ")[0], re.M)
    text += shared
    options = declaration_of(str(script)).options
    assert len(options) >= 3
    for name, option in options.items():
        read = re.search(rf"\b{option.variable}\b|{name}\b|options_of", text)
        assert name in result.stdout and (read or name == "--help"), name
