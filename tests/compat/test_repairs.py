"""Repairs of fairseq: how they are applied, and repaired files, layers, data and batches."""

import copy
import os
import shutil
import warnings
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import FairseqDataset, TokenBlockDataset, bucket_pad_length_dataset, data_utils
from fairseq.file_io import PathManager
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks.fairseq_task import FairseqTask
from support.commands import ROOT, Command

from fairseq_posenc import compat
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat import data

pytestmark = pytest.mark.properties


def test_applying_twice_changes_nothing():
    owners = [bucket_pad_length_dataset, *(owner for owner, _, _ in compat.REPAIRS)]
    before = [dict(vars(owner)) for owner in owners]
    compat.apply()
    assert [dict(vars(owner)) for owner in owners] == before


def test_without_repairs_stock_fairseq_stays_as_it_is(tmp_path, monkeypatch):
    """Compare in a new process, since the plug-in is already loaded in this one."""
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


def test_a_checkpoint_is_replaced_when_the_next_is_complete(tmp_path, monkeypatch):
    path, copy = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    (tmp_path / "checkpoint1.pt.tmp").write_text("of a killed run without the plug-in")
    checkpoint_utils.torch_persistent_save({"number": 1}, str(path))
    assert PathManager.copy(str(path), str(copy), overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]
    before = copy.read_bytes()
    assert before == path.read_bytes()

    def half(source, target):
        Path(target).write_bytes(before[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", half)
    with pytest.raises(UsageError, match="checkpoint_last.pt: cannot be written .No space left"):
        PathManager.copy(str(path), str(copy), overwrite=True)
    assert copy.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_compat_long_is_there_when_numpy_has_it_no_more(monkeypatch):
    if hasattr(np, "compat"):
        monkeypatch.delattr(np, "compat")
    data.numpy_compat_long()
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
    assert data._buckets(sizes, number).tolist() == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (data_utils, bucket_pad_length_dataset):
            assert module.get_buckets(sizes, number).tolist() == expected


def encoder_layer():
    cfg = TransformerConfig()
    cfg.encoder.embed_dim = cfg.encoder.ffn_embed_dim = 8
    cfg.encoder.attention_heads = 2
    cfg.dropout = 0.0
    return TransformerEncoderLayerBase(cfg)


NAMES = {
    *(f"self_attn.{x}_proj.{y}" for x in ("q", "k", "v", "out") for y in ("weight", "bias")),
    *(f"{x}.{y}" for x in ("fc1", "fc2") for y in ("weight", "bias")),
    *(f"{x}_layer_norm.{y}" for x in ("self_attn", "final") for y in ("weight", "bias")),
}


def test_a_layer_calls_its_attention_after_loading():
    layer = encoder_layer()
    compat.no_fast_path(layer)
    assert {name for name, _ in layer.named_parameters()} == set(layer.state_dict()) == NAMES
    other = copy.deepcopy(layer)
    layer.load_state_dict(layer.state_dict())
    other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 3, 8)
    padding = torch.tensor([[True, False, False, False, False], *[[False] * 5] * 2])
    expected = layer.train()(x, padding)  # training mode has no fast path; dropout is 0
    calls = []
    other.self_attn.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(x, padding), expected)
        other(x, None)
    assert len(calls) == 2


def test_a_layer_loads_what_fairseq_0_12_2_saved_and_still_refuses_other_names():
    layer = encoder_layer()
    compat.no_fast_path(layer)
    state = {name: torch.randn_like(value) for name, value in layer.state_dict().items()}
    official = dict(state, in_proj_weight=torch.randn(24, 8), fc1_bias=torch.zeros(8))
    stack = torch.nn.ModuleList([layer])
    stack.load_state_dict({f"0.{name}": value for name, value in official.items()})
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name])
    with pytest.raises(RuntimeError, match="in_proj_x"):
        layer.load_state_dict(dict(official, in_proj_x=torch.zeros(1)))
    del state["fc1.bias"]
    with pytest.raises(RuntimeError, match="fc1.bias"):
        layer.load_state_dict(state)


# --- batches


class Epochs(FairseqDataset):
    """A data set whose items are the number of the epoch."""

    can_reuse_epoch_itr_across_epochs = True
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return self.epoch

    def __len__(self):
        return 4

    def size(self, index):
        return 1

    num_tokens = size

    def collater(self, samples):
        return samples


@pytest.mark.parametrize("processes", [0, 1])
def test_processes_that_load_data_learn_of_the_epoch(processes):
    task, data = FairseqTask(Namespace()), Epochs()
    for epoch in (1, 2, 3):
        batches = task.get_batch_iterator(data, max_sentences=2, epoch=epoch, num_workers=processes)
        assert list(batches.next_epoch_itr()) == [[epoch, epoch]] * 2


@pytest.mark.parametrize("size", [1, 7, 8, 9, 461])
@pytest.mark.parametrize("way", ["by vector", "by function", "fixed shapes"])
@pytest.mark.parametrize("multiple", [1, 8])
def test_batches_hold_every_sentence_once_and_in_order(size, way, multiple):
    sizes = np.random.RandomState(size).randint(1, 20, size)
    indices = np.argsort(sizes, kind="stable")
    vector = sizes[indices] if way == "by vector" else None
    shapes = np.array([(16, 20), (33, 10), (66, 5)]) if way == "fixed shapes" else None
    batches = data_utils.batch_by_size(
        indices,
        num_tokens_fn=sizes.__getitem__,
        num_tokens_vec=vector,
        max_tokens=330,
        required_batch_size_multiple=multiple,
        fixed_shapes=shapes,
    )
    assert np.concatenate(batches).tolist() == indices.tolist()
    for batch in batches:
        assert 0 < len(batch) * max(sizes[batch]) <= 330
    for batch in batches[:-1]:
        assert len(batch) < multiple or len(batch) % multiple == 0 or way == "fixed shapes"
