"""Work-arounds for fairseq, PyTorch and NumPy: each quirk, and that nothing else changes."""

import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset, bucket_pad_length_dataset, data_utils
from support.commands import Command

import fairseq_posenc
from fairseq_posenc import compat
from fairseq_posenc.basics import versions
from fairseq_posenc.basics.versions import parse_version
from fairseq_posenc.compat import libraries, patching

PACKAGE = Path(fairseq_posenc.__file__).resolve().parent


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
        patching.wrap(home, "answer", lambda original: lambda: original() + 1)
    assert (home.answer(), importer.answer(), other.answer()) == (43, 43, 42)


# NumPy 2


def test_compat_long_is_there_when_numpy_has_it_no_more(monkeypatch):
    if hasattr(np, "compat"):
        monkeypatch.delattr(np, "compat")
    libraries.numpy_compat_long()
    sizes = [3, 1, 4]
    blocks = TokenBlockDataset(
        *([torch.ones(size).long() for size in sizes], sizes, None), pad=0, eos=2, break_mode="eos"
    )
    assert [len(block) for block in blocks] == sizes


@pytest.mark.parametrize("number", [1, 2, 3, 7, 50])
def test_buckets_are_lower_percentiles(number):
    sizes = np.random.RandomState(number).randint(1, 100, 64)
    ordered = sorted(sizes.tolist())
    positions = [int((len(sizes) - 1) * rank / number + 1e-9) for rank in range(1, number + 1)]
    expected = sorted({ordered[position] for position in positions})
    assert libraries._buckets(sizes, number).tolist() == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (data_utils, bucket_pad_length_dataset):
            assert module.get_buckets(sizes, number).tolist() == expected


# PyTorch


def test_versions_are_read_from_any_spelling():
    spellings = {"2.13.0+cpu": (2, 13), "1.13.0a0+git1": (1, 13), "2.0": (2, 0)}
    assert {text: parse_version(text) for text in spellings} == spellings
    with pytest.raises(ValueError):
        parse_version("nightly")


def test_attention_constants_tell_the_truth():
    attend = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    assert versions.HAS_SDPA == (attend is not None)
    if attend is None:
        assert not versions.SDPA_HAS_SCALE and not versions.SDPA_SAFE_MASKS
        return
    q = torch.randn(1, 1, 3, 8, requires_grad=True)
    assert versions.SDPA_HAS_SCALE == ("scale" in (attend.__doc__ or ""))
    mask = torch.zeros(3, 3)
    mask[1] = float("-inf")
    out = attend(q, q, q, attn_mask=mask)
    out.sum().backward()
    safe = bool(out[0, 0, 1].eq(0).all()) and bool(torch.isfinite(q.grad).all())
    assert safe or not versions.SDPA_SAFE_MASKS


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
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE.parent))
    for value, expected in (("1", "True []"), ("0", "load_checkpoint_to_cpu")):
        monkeypatch.setenv("FAIRSEQ_POSENC_NO_REPAIRS", value)
        finished = Command(str(script), []).finish()
        assert finished.status == 0, finished.err
        assert expected in finished.out


# clipping


@pytest.mark.parametrize("aggregate", [None, lambda norm: norm * 2])
def test_the_norm_of_gradients_is_moved_to_their_device(aggregate):
    """As if fairseq had computed it on another one."""
    weights = [None, torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))]
    weights[2].grad = torch.ones(2)
    moved = []

    class Norm(float):
        def __mul__(self, other):
            return Norm(float(self) * other)

        def to(self, device):
            moved.append(device)
            return float(self)

    def clip(params, max_norm, aggregate_norm_fn):
        assert params == weights and max_norm == 3.0
        return aggregate_norm_fn(Norm(7))

    found = libraries.clip_where_gradients_are(clip)(iter(weights), 3.0, aggregate)
    assert found == (7 if aggregate is None else 14) and moved == [torch.device("cpu")]
