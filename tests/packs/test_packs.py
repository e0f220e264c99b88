"""Each pack can be deleted: the rest still works and uses no name that the pack registers.

Only other packs may name a pack's flags, to refuse them or to act on them.
"""

import ast
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from support.commands import Command

import fairseq_posenc
from fairseq_posenc import packs

pytestmark = pytest.mark.properties
PACKAGE = Path(fairseq_posenc.__file__).parent
PACKS = [module.name for module in pkgutil.iter_modules(packs.__path__)]
ROOT = Path(__file__).resolve().parents[2]
#: Tests that need no pack; tests of packs and of recipes, which may use any pack, are left out.
CORE = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("tests/*/", "tests/test_*.py")
    for path in ROOT.glob(pattern)
    if path.name not in ("examples", "packs", "scripts", "study", "support")
)
FAST = "not slow and not copies and not gpu"


def names(folder):
    """Check that the package in a folder works; returns the names that it registers."""
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    with mock.patch.dict(os.environ, PYTHONPATH=paths):
        done = Command(str(Path(__file__).with_name("remaining.py")), []).finish()
    assert done.status == 0, done.err
    return set(json.loads(done.out.splitlines()[-1]))


def words(file):
    """Yield the strings, attributes and variables of a module; leading dashes are removed."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.lstrip("-").replace("-", "_")
        elif isinstance(node, (ast.Attribute, ast.Name)):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


@pytest.fixture(scope="module")
def whole():
    """The names that are registered with all packs, and the words of each file of the core."""
    core = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "packs" not in path.parents]
    return names(PACKAGE.parent), {path.relative_to(PACKAGE): set(words(path)) for path in core}


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_can_be_deleted(pack, whole, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "fairseq_posenc")  # bytecode included
    shutil.rmtree(tmp_path / "fairseq_posenc" / "packs" / pack)
    gone = whole[0] - names(tmp_path)
    assert gone, f"{pack} registers nothing"
    for file, named in whole[1].items():
        assert not gone & named, f"{file} names {gone & named} of the pack {pack}"


def delete(pack, root):
    """Delete a pack as docs/adding.md describes it: with its tests, its page, and links to it."""
    page = (root / f"docs/packs/{pack}.md").resolve()
    for folder in ("fairseq_posenc/packs", "tests/packs"):
        shutil.rmtree(root / folder / pack)
    page.unlink()
    link = re.compile(r"\[([^\]]*)\]\(([^)#\s]+\.md)(#[^)\s]*)?\)")

    def without(match, folder):
        return match.group(1) if (folder / match.group(2)).resolve() == page else match.group()

    for file in root.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        text = link.sub(lambda match, folder=file.parent: without(match, folder), text)
        file.write_text(text, encoding="utf-8")
    site = root / "mkdocs.yml"
    text = re.sub(rf".* packs/{page.name}\n", "", site.read_text(encoding="utf-8"))
    site.write_text(re.sub(r"  - Packs:\n(?!    )", "", text), encoding="utf-8")  # if it is empty


@pytest.mark.copies
@pytest.mark.parametrize("deleted", [PACKS, *([pack] for pack in PACKS)], ids="-".join)
def test_the_core_passes_its_tests_without(deleted, tmp_path):
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listing.stdout.decode().split("\0")[:-1]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for pack in deleted:
        delete(pack, tmp_path)
    # tests of the recipes' pages are left out, too
    core = [name for name in CORE if (tmp_path / name).exists()]  # some folders have only bytecode
    command = [sys.executable, "-m", "pytest", "-q", "-m", FAST, "-k", "not examples/", *core]
    # a new pytest process, because processes of this run have imported this checkout's package
    environment = {name: x for name, x in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10000:]
