"""The core passes its tests on a copy from which a pack, or all of them, was deleted."""

import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc import packs

ROOT = Path(__file__).resolve().parents[2]
PACKS = [module.name for module in pkgutil.iter_modules(packs.__path__)]
#: The tests that need no pack: all but those of packs and of recipes, which may use any.
CORE = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("tests/*/", "tests/test_*.py")
    for path in ROOT.glob(pattern)
    if path.name not in ("examples", "packs", "scripts", "study", "support")
)

FAST = "not slow and not copies and not gpu"


def delete(pack, root):
    """Delete a pack as docs/adding.md says it: with its tests, its page, and the links to it."""
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
    site.write_text(re.sub(r"  - Packs:\n(?!    )", "", text), encoding="utf-8")  # of the last


@pytest.mark.copies
@pytest.mark.parametrize("deleted", [PACKS, *([pack] for pack in PACKS)], ids="-".join)
def test_the_core_passes_its_tests_without(deleted, tmp_path):
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listing.stdout.decode().split("\0")[:-1]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for pack in deleted:
        delete(pack, tmp_path)
    # the pages of recipes are left out, too
    command = [sys.executable, "-m", "pytest", "-q", "-m", FAST, "-k", "not examples/", *CORE]
    # a run of its own: processes of this one have this checkout's package
    environment = {name: x for name, x in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10000:]
