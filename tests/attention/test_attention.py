"""Attention against loops in float64, and its fused path against its explicit one."""

import pytest
import torch
from support.helpers import skip_without_cpu_kernels, tiny
from support.parts import slow_attention

from fairseq_posenc.attention import functional
from fairseq_posenc.attention.functional import additive_mask, attend, attend_with_weights

pytestmark = pytest.mark.formulas

B, H, T, S, D = 2, 3, 4, 7, 8


def qkv(dtype=torch.float32, t=T):
    q, k, v = (torch.randn(B, H, length, D, dtype=dtype) for length in (t, S, S))
    return q, k, v


def allowed_keys(causal, padding, t=T):
    """Which keys (B, T, S) each query may see: the queries are the last t of S."""
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
    """Fused and explicit."""
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
    for missing in ("", "SDPA_HAS_SCALE", "HAS_SDPA"):  # before PyTorch 2.1, and 2.0
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
    """Products with later keys can overflow, as those of xPos, which grow with the distance."""
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
    """Each head has mean 0 (with layer norm) and mean square 1, before it is rotated."""
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
    assert (layer.q_norm is not layer.k_norm) and hasattr(layer.q_norm, "weight") == (
        norm == "layer"
    )
