"""The fast path of fairseq 0.12.2: it is not taken, and its checkpoints are read."""

import copy

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_posenc import compat


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
