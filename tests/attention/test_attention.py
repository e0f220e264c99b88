"""Fused and explicit attention against float64 loops, and grouped queries.

A model with fewer key heads must equal a full model that has each key head several times.
"""

import logging

import pytest
import torch
from support.formulas import CONTENT
from support.helpers import (
    OTHER_LAYERS,
    decode_in_steps,
    padded_batch,
    sentences,
    skip_without_cpu_kernels,
    tiny,
)
from support.parts import slow_attention

from fairseq_posenc.attention import functional
from fairseq_posenc.attention.functional import additive_mask, attend, attend_with_weights
from fairseq_posenc.basics.errors import UsageError

pytestmark = pytest.mark.formulas

B, H, T, S, D = 2, 4, 4, 7, 8


def qkv(dtype=torch.float32, t=T):
    q, k, v = (torch.randn(B, H, length, D, dtype=dtype) for length in (t, S, S))
    return q, k, v


def allowed_keys(causal, padding, t=T):
    """Which keys each query may see, as a mask (B, T, S); queries are the last *t* tokens."""
    seen = torch.ones(B, t, S, dtype=torch.bool)
    seen = seen.tril(S - t) if causal else seen
    return seen if padding is None else seen & ~padding[:, None]


PADDINGS = {
    "none": None,
    "left": torch.tensor([[True] * 5 + [False] * 2, [False] * 7]),
    "right": torch.tensor([[False] * 3 + [True] * 4, [False] * 7]),
    "all": torch.tensor([[True] * 7, [False] * 7]),
}


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_is_the_float64_formula(biased, causal, padding):
    q, k, v = qkv()
    mask = additive_mask(T, S, causal, PADDINGS[padding], q)
    bias = torch.randn(1, H, T, S) if biased else None
    total = mask if bias is None else (bias if mask is None else bias + mask)
    full_bias = bias.expand(B, H, T, S) if biased else None
    want = slow_attention(q, k, v, 0.3, allowed_keys(causal, PADDINGS[padding]), full_bias)
    for got in (attend(q, k, v, 0.3, total), attend_with_weights(q, k, v, 0.3, total)[0]):
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


def test_the_kernels_own_causal_mask_is_ours(monkeypatch):
    q, k, v = qkv(t=S)
    want = slow_attention(q, k, v, 0.5, allowed_keys(True, None, S))
    for missing in ("", "SDPA_HAS_SCALE", "HAS_SDPA"):  # as before PyTorch 2.1 and before 2.0
        if missing:
            monkeypatch.setattr(functional, missing, False)
        explicit = attend_with_weights(q, k, v, 0.5, None, True)[0]
        for got in (attend(q, k, v, 0.5, None, True), explicit):
            torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("path", [attend, lambda *a: attend_with_weights(*a)[0]])
@pytest.mark.parametrize("kernel_gives_zeros", [True, False])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(
    path, dtype, kernel_gives_zeros, monkeypatch
):
    skip_without_cpu_kernels(dtype)
    if not kernel_gives_zeros:  # as before PyTorch 2.5
        monkeypatch.setattr(functional, "SDPA_SAFE_MASKS", False)
    q, k, v = (x.to(dtype).requires_grad_() for x in qkv())
    mask = additive_mask(T, S, True, PADDINGS["left"], q)  # rows 0 and 1 of sentence 0 see nothing
    out = path(q, k, v, 1.0, mask)
    assert torch.equal(out[0, :, 0], torch.zeros(H, D, dtype=dtype))
    assert out[1].abs().sum() > 0
    out.float().pow(2).sum().backward()
    for x in (q, k, v):
        assert torch.isfinite(x.grad).all()


def test_a_product_with_a_hidden_key_may_be_infinite():
    """With xPos, products with later keys grow with the distance and can overflow."""
    skip_without_cpu_kernels(torch.float16)
    q, k, v = (x.half() for x in qkv())
    k[:, :, -1] = 60000 * q[:, :, -1].sign()
    mask = additive_mask(T, S, True, None, q)
    out, weights = attend_with_weights(q, k, v, 1.0, mask)
    assert torch.isfinite(out[:, :, :-1]).all() and (weights[:, :, :-1, -1] == 0).all()
    k[:, :, -1] = 0
    want = attend_with_weights(q, k, v, 1.0, mask)[0]
    torch.testing.assert_close(out[:, :, :-1], want[:, :, :-1])


@pytest.mark.parametrize("norm", ["layer", "rms"])
@torch.no_grad()
def test_normalised_queries_and_keys_by_hand(norm):
    """Before rotation, queries and keys have mean square 1 per head (with layer norm, mean 0)."""
    model = tiny("rotary", "--qk-norm", "--norm", norm)
    layer, x = model.encoder.layers[0].self_attn, torch.randn(2, 5, 32)
    unturned = {"table": torch.ones(1, 5, 1, 4, dtype=torch.complex64)}
    q, k, _, plain_q, plain_k, *_ = layer.project(x, unturned)
    assert torch.equal(q, plain_q) and torch.equal(k, plain_k)
    for got, projection in ((q, layer.q_proj), (k, layer.k_proj)):
        want = projection(x).double().view(2, 5, 4, 8).transpose(1, 2)
        want = want - want.mean(-1, keepdim=True) if norm == "layer" else want
        want = want / (want.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)
    assert layer.q_norm is not layer.k_norm
    assert hasattr(layer.q_norm, "weight") == (norm == "layer")


# --- grouped queries


PROJECTIONS = ("attn.k_proj", "attn.v_proj", "global_k_proj", "global_v_proj")


def repeated(state, kv_heads):
    """Parameters of an equivalent model without --kv-heads: key and value heads are repeated."""

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


#: all content-dependent encodings, three encodings of other kinds, and two sparse kernels
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
        other.load_state_dict(full.state_dict())  # the keys of a group are equal
    for name, x in other.state_dict().items():
        torch.testing.assert_close(x, want[name], atol=1e-6, rtol=0)
    assert "encoder has 2 key and value heads, made from 4 in" in caplog.text
    source, target = padded_batch()
    again = tiny("rotary")
    again.load_state_dict(want)
    torch.testing.assert_close(again(source, None, target)[0], grouped(source, None, target)[0])
    other.decoder.strict_positions = True
    with pytest.raises(UsageError, match="--kv-heads 2: the checkpoint has 4 key heads in dec"):
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
    """With gradients, attention is not fused, and keys and values must have equally many heads."""
    model = tiny("shaw_per_head:shaw", "--kv-heads", heads)
    source, target = sentences(2, 5), sentences(2, 1, seed=1)
    with torch.no_grad():
        fused = model(source, None, target)[0]
    torch.testing.assert_close(model(source, None, target)[0].detach(), fused, atol=1e-6, rtol=1e-5)
