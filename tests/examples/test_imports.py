"""The modules that the Python files of a recipe import lie beside them, or in examples/common."""

import ast

import pytest
from support.recipes import EXAMPLES

FILES = sorted(path for path in EXAMPLES.glob("*/*.py") if not path.is_symlink())
MODULES = {path.stem for path in EXAMPLES.glob("*/*.py")}


def imported(path):
    """Names of the modules of recipes that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found & MODULES


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_all_imported_modules_are_there(path):
    places = (path.parent, EXAMPLES / "common")
    for name in imported(path):
        assert any((place / f"{name}.py").is_file() for place in places), name
