"""The structure of the package: no circular imports, and few calls from tokens to logits."""

import ast
import sys
from collections import Counter
from pathlib import Path

import fairseq
import pytest
import torch
from support.helpers import build, sentences
from support.masked_language_models import tiny

PACKAGE = Path(__file__).resolve().parents[1] / "fairseq_posenc"
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
    for path in PACKAGE.rglob("*.py")
}


def imported_by(name):
    """The files of the package that a file imports, at its top or inside of functions."""
    found = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{name}: a relative import"
            # each name may be a module itself, or an object of the module *node.module*
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [n if {n, f"{n}.__init__"} & set(FILES) else node.module for n in names]
        else:
            continue
        found.update({n if n in FILES else f"{n}.__init__" for n in names} & set(FILES))
    return found - {name}


IMPORTS = {name: imported_by(name) for name in FILES}


def test_no_file_imports_what_imports_it():
    assert sum(map(len, IMPORTS.values())) > 100
    left = dict(IMPORTS)
    while left:
        free = [name for name, others in left.items() if not others & set(left)]
        assert free, f"a circle among {sorted(left)}"
        for name in free:
            del left[name]


def folder(name):
    """The package's folder that holds a module; for a module in the root, its own name."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else name


#: The folders of the package: each imports only from itself and from folders before it.
FLOORS = (
    "basics compat flags encodings attention layers configuration checkpoints "
    "stacks models training command_line serving exchange analysis cli packs"
).split()


def test_every_folder_stands_on_a_floor_and_imports_from_those_below():
    assert {folder(name) for name in FILES if name.count(".") > 1} == set(FLOORS)
    for name, others in IMPORTS.items():
        if folder(name) in FLOORS:
            above = FLOORS[FLOORS.index(folder(name)) + 1 :]
            assert not [other for other in others if folder(other) in above], name


def test_the_root_holds_six_modules_at_most():
    assert len(list(PACKAGE.glob("*.py"))) <= 6


def test_encodings_know_no_fairseq():
    for path in (PACKAGE / "encodings").glob("*.py"):
        names = [
            getattr(node, "module", None) or node.names[0].name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        assert not [name for name in names if name.split(".")[0] == "fairseq"], path


@torch.no_grad()
@pytest.mark.parametrize(
    "model, texts, calls, files",
    [
        # two encoder layers, and two decoder layers with cross-attention
        (lambda: build("roformer_tiny"), (sentences(2, 9), None, sentences(2, 9)), 70, 8),
        (lambda: tiny("rotary"), (sentences(2, 9),), 38, 7),
    ],
    ids=["translation", "masked_lm"],
)
def test_a_token_takes_a_straight_way_to_its_logits(model, texts, calls, files):
    """Limits the function calls in the plug-in and fairseq, and the plug-in's files involved."""
    model, found = model().eval(), Counter()
    roots = (str(PACKAGE), str(Path(fairseq.__file__).parent))

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(roots):
            found[frame.f_code.co_filename] += 1

    model(*texts)  # constants are computed once
    sys.setprofile(note)
    try:
        model(*texts)
    finally:
        sys.setprofile(None)
    assert sum(found.values()) <= calls
    assert len([path for path in found if path.startswith(str(PACKAGE))]) <= files
