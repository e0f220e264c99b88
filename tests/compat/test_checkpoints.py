"""Work-arounds for fairseq's checkpoints: those of 0.12.2, and files complete or absent."""

import copy
import io
import os
import shutil
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_posenc import compat
from fairseq_posenc.basics.errors import UsageError

# The fast path of fairseq 0.12.2


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
    expected = layer.train()(x, padding)  # with dropout 0, and never a fast path
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


# Checkpoints that are complete or absent


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


def test_other_places_than_files_are_left_to_fairseq(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(shutil, "copyfile", lambda *paths: seen.append(paths) or "copied")
    for source, target in (("a", "s3://b"), ("s3://a", "b")):
        assert PathManager.copy(source, target, overwrite=True) == "copied"
    assert seen == [("a", "s3://b"), ("s3://a", "b")]
    buffer = io.BytesIO()
    with pytest.raises(TypeError):  # as in stock
        checkpoint_utils.torch_persistent_save({"number": 1}, buffer)
