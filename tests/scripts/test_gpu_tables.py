"""The script for the tables of a GPU: its commands are those that the benchmark takes."""

import json
import re
import shlex

import pytest
from support.shell_scripts import REPO, SCRIPTS, shell

TABLES = SCRIPTS / "gpu_tables.sh"
PAGE = (REPO / "docs" / "speed.md").read_text(encoding="utf-8")
NAMES = "generation-float16 recorded training-bfloat16 attention linear flex rotation".split()
NAMES += ["training-float16", "masked-lm", "generation-bfloat16", "compiled", "tests"]


def commands(*flags):
    listed = shell(TABLES, "out", "--dry-run", *flags)
    assert listed.returncode == 0, listed.stderr
    return [shlex.split(line[2:]) for line in listed.stdout.split("\n") if line.startswith("+ ")]


def order(names):
    return sorted(names.split(","), key=NAMES.index)


def test_every_table_has_a_command_and_is_found_by_its_name():
    every = commands()
    assert len(every) == len(NAMES)
    for name, command in zip(NAMES, every):
        assert any(word.endswith(("/tests", f"/{name}.json")) for word in command), name
        assert name in TABLES.read_text(encoding="utf-8").split("set -euo")[0]
    named = re.findall(r"gpu_tables.sh runs/gpu --only (\S+)", PAGE)
    assert len(named) == 3 and set(",".join(named).split(",")) < set(NAMES)
    assert commands("--only", named[0]) == [every[NAMES.index(n)] for n in order(named[0])]
    unknown = shell(TABLES, "out", "--dry-run", "--only", "speed")
    assert unknown.returncode == 1 and "--only speed: no such table" in unknown.stderr


def test_without_a_gpu_it_says_so(tmp_path):
    ended = shell(TABLES, tmp_path / "out")
    assert ended.returncode == 1 and "no GPU here; --cpu tries" in ended.stderr


@pytest.mark.slow
def test_all_tables_are_made_on_a_cpu_once(tmp_path):
    for _ in range(2):
        ended = shell(TABLES, tmp_path / "out", "--cpu", timeout=900)
        assert ended.returncode == 0, ended.stderr
    made = {path.stem for path in (tmp_path / "out").glob("*.json")}
    assert made == set(NAMES) - {"flex", "tests"}
    assert ended.stderr.count("already done") == len(made)
    json.loads((tmp_path / "out" / "attention.json").read_text())
