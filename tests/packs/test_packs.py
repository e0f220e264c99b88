"""Each pack can be deleted: what is left works, and core and tools name nothing that it registers.

Another pack may name its flags, to refuse them or to go by them.
"""

import ast
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairseq_posenc
from fairseq_posenc import packs

PACKAGE = Path(fairseq_posenc.__file__).parent
PACKS = [module.name for module in pkgutil.iter_modules(packs.__path__)]


def names(folder):
    """What is registered with the package in a folder, which works."""
    paths = [str(folder), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(Path(__file__).with_name("remaining.py"))]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def words(file):
    """The string literals, attributes and variables of a module, flags without their dashes."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.lstrip("-").replace("-", "_")
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


@pytest.fixture(scope="module")
def all_names():
    """What is registered with every pack."""
    return names(PACKAGE.parent)


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_can_be_deleted(pack, all_names, tmp_path):
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "fairseq_posenc", ignore=left_out)
    shutil.rmtree(tmp_path / "fairseq_posenc" / "packs" / pack)
    gone = all_names - names(tmp_path)
    assert gone, f"{pack} registers nothing"
    shutil.rmtree(tmp_path / "fairseq_posenc" / "packs")
    for file in (tmp_path / "fairseq_posenc").rglob("*.py"):
        named = gone & set(words(file))
        assert not named, f"{file.relative_to(tmp_path)} names {named} of the pack {pack}"
