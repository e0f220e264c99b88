"""Grouped queries: a model of fewer key heads is a full one whose key heads are equal in groups."""

import logging

import pytest
import torch
from support.formulas import CONTENT
from support.helpers import OTHER_LAYERS, decode_in_steps, padded_batch, sentences, tiny

from fairseq_posenc.attention import functional
from fairseq_posenc.attention.functional import attend, attend_with_weights
from fairseq_posenc.basics.errors import UsageError

pytestmark = pytest.mark.formulas

H, D = 4, 8
PROJECTIONS = ("attn.k_proj", "attn.v_proj", "global_k_proj", "global_v_proj")


def repeated(state, kv_heads):
    """The parameters of the full model that computes the same."""

    def rows(name, x):
        if not name.rpartition(".")[0].endswith(PROJECTIONS):
            return x
        heads = x.view(kv_heads, -1, *x.shape[1:])
        return heads.repeat_interleave(H // kv_heads, dim=0).flatten(0, 1)

    return {name: rows(name, x) for name, x in state.items()}


def pair_of_models(name, kv_heads=2, *flags):
    grouped = tiny(name, "--kv-heads", str(kv_heads), *flags)
    full = tiny(name, *flags)
    full.load_state_dict(repeated(grouped.state_dict(), kv_heads))
    return grouped, full


#: terms of every kind, a transform, logits of positions, and kernels of some keys
SHARING = [*CONTENT, "rotary", "t5", "learned+rotary"]
SHARING += [name for name in ("local:rotary", "bigbird:t5") if name in OTHER_LAYERS]


@pytest.mark.parametrize("name", SHARING)
@torch.no_grad()
def test_grouped_queries_equal_repeated_keys(name):
    grouped, full = pair_of_models(name)
    source, target = padded_batch()
    want, _ = full(source, None, target)
    got, _ = grouped(source, None, target)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    source, target = sentences(3, 7), sentences(3, 9, seed=1)
    want, _ = full(source, None, target)
    cached = decode_in_steps(grouped, source, target, [3, 1, 1, 2, 1, 1])
    torch.testing.assert_close(cached, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("t, s", [(1, 6), (3, 6), (6, 6)])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "heads", "rows"])
def test_every_way_through_the_kernels_is_the_same(t, s, mask, monkeypatch):
    q, bias, causal = torch.randn(2, H, t, D), None, mask == "causal" and t == s
    shape = {"padding": (2, 1, 1, s), "heads": (1, H, 1, s), "rows": (2, H, t, s)}.get(mask)
    if shape is not None:
        bias = torch.randn(shape)
        bias[..., 0] = float("-inf")
    for kv_heads in (1, 2):
        k, v = torch.randn(2, 2, kv_heads, s, D)
        full = [x.repeat_interleave(H // kv_heads, dim=1) for x in (k, v)]
        want = attend_with_weights(q, *full, 0.3, bias, causal)
        for has_groups in (functional.SDPA_HAS_GROUPS, False):
            monkeypatch.setattr(functional, "SDPA_HAS_GROUPS", has_groups)
            got = attend_with_weights(q, k, v, 0.3, bias, causal)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(attend(q, k, v, 0.3, bias, causal), want[0])


@torch.no_grad()
def test_caches_have_the_key_heads_only():
    model = tiny("rotary", "--decoder-kv-heads", "1")
    source, target = sentences(3, 7), sentences(3, 1, seed=1)
    assert model.encoder.layers[0].self_attn.k_proj.weight.size(0) == H * D
    state = {}
    model.decoder(target, encoder_out=model.encoder(source), incremental_state=state)
    layer = model.decoder.layers[0]
    for attention in (layer.self_attn, layer.encoder_attn):
        kept = attention._get_input_buffer(state)
        assert kept["prev_key"].shape[:2] == kept["prev_value"].shape[:2] == (3, 1)


@torch.no_grad()
def test_a_full_model_continues_with_the_means_of_its_heads_and_a_grouped_one_with_copies(caplog):
    grouped, full = pair_of_models("rotary")
    want = {name: x.clone() for name, x in grouped.state_dict().items()}
    other = tiny("rotary", "--kv-heads", "2")
    with caplog.at_level(logging.WARNING, logger="fairseq_posenc"):
        other.load_state_dict(full.state_dict())  # heads that are equal in groups
    for name, x in other.state_dict().items():
        torch.testing.assert_close(x, want[name], atol=1e-6, rtol=0)
    assert "encoder has 2 heads of keys and values for the 4 of" in caplog.text
    source, target = padded_batch()
    again = tiny("rotary")
    again.load_state_dict(want)
    torch.testing.assert_close(again(source, None, target)[0], grouped(source, None, target)[0])
    other.decoder.strict_positions = True
    with pytest.raises(UsageError, match="--kv-heads 2: the checkpoint has 4 heads of keys in dec"):
        other.load_state_dict(full.state_dict())


def test_keys_of_a_model_of_another_width_are_not_taken_for_grouped_ones(caplog):
    narrow = tiny("rotary", "--encoder-embed-dim", str(D), "--encoder-attention-heads", "1")
    with pytest.raises(RuntimeError, match="size mismatch for encoder.layers.0.self_attn.k_proj"):
        tiny("rotary").load_state_dict(narrow.state_dict())
    assert "encoder has" not in caplog.text


def test_keys_of_each_head_are_refused_only_where_heads_share_them():
    tiny("bert_ad", "--encoder-kv-heads", "2", "--encoder-position-encoding", "rotary")


@pytest.mark.parametrize("heads", ["1", "2"])
def test_one_query_with_values_of_distances_by_head(heads):
    """With a gradient, attention is not fused; keys and values are then of the same heads."""
    model = tiny("shaw_per_head:shaw", "--kv-heads", heads)
    source, target = sentences(2, 5), sentences(2, 1, seed=1)
    with torch.no_grad():
        fused = model(source, None, target)[0]
    torch.testing.assert_close(model(source, None, target)[0].detach(), fused, atol=1e-6, rtol=1e-5)
