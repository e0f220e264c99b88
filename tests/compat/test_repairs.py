"""The table of repairs: each is installed once, says why, and nothing else changes."""

import sys
import types

import pytest
from fairseq.data import bucket_pad_length_dataset
from support.commands import ROOT, Command

from fairseq_posenc import compat


def test_applying_twice_changes_nothing():
    owners = [bucket_pad_length_dataset, *(owner for owner, _, _ in compat.REPAIRS)]
    before = [dict(vars(owner)) for owner in owners]
    compat.apply()
    assert [dict(vars(owner)) for owner in owners] == before


@pytest.mark.parametrize("repair", dict.fromkeys(repair for *_, repair in compat.REPAIRS))
def test_every_repair_says_why(repair):
    assert len(repair.__doc__.split()) > 15


def test_a_replacement_reaches_who_imported_the_original(monkeypatch):
    home, importer, other = (types.ModuleType(name) for name in ("fairseq.a", "fairseq.b", "c"))
    for module in (home, importer, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    home.answer = importer.answer = other.answer = lambda: 42
    for _ in range(2):
        compat.wrap(home, "answer", lambda original: lambda: original() + 1)
    assert (home.answer(), importer.answer(), other.answer()) == (43, 43, 42)


def test_without_repairs_stock_fairseq_stays_as_it_is(tmp_path, monkeypatch):
    """A process of its own, since the plug-in is loaded here."""
    code = """
import sys
import fairseq.models, fairseq.options, fairseq.trainer, fairseq.checkpoint_utils
from fairseq import data, tasks

def functions():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq":
            found.update({(name, key): id(value) for key, value in vars(module).items()
                          if callable(value) and not key.startswith("__")})
            for owner in [v for v in vars(module).values() if isinstance(v, type)]:
                found.update({(name, owner.__name__, key): id(value)
                              for key, value in vars(owner).items() if callable(value)})
    return found

before = functions()
import fairseq_posenc
after = functions()
changed = sorted(str(key) for key in before if after.get(key) != before[key])
assert "roformer_base" in fairseq.models.ARCH_MODEL_REGISTRY
print(len(before) > 1000, changed)
"""
    script = tmp_path / "compare.py"
    script.write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for value, expected in (("1", "True []"), ("0", "load_checkpoint_to_cpu")):
        monkeypatch.setenv("FAIRSEQ_POSENC_NO_REPAIRS", value)
        finished = Command(str(script), []).finish()
        assert finished.status == 0, finished.err
        assert expected in finished.out
