"""Forget gates against the paper's formula, and where they are defined."""

import math

import pytest
import torch
from support.formulas import B, D, H, Parts, lengths, random
from support.helpers import build, sentences, skip_without_cpu_kernels, tiny
from support.parts import attended_alone

from fairseq_posenc.attention.functional import attend
from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Content


def gates_of(parts, x):
    """f of every head and token of x (B, S, C), by loops over the formula."""
    heads = list(zip(parts.terms["fox"].weight, parts.terms["fox"].bias))
    return [
        [[1 / (1 + math.exp(-float(w @ token + b))) for token in row] for w, b in heads]
        for row in x
    ]


@lengths
def test_logits_are_sums_of_the_logarithms_of_the_gates_between(length, keys):
    """Lin et al. 2503.02130, Eq. 5 to 7."""
    parts, x = Parts("fox", causal=True), random(B, keys, H * D)
    q = random(B, H, length, D)
    states = parts.terms.key_states(x)
    got = parts.logits(q, random(B, H, keys, D), x=x, key_states=states)
    gates = gates_of(parts, x)
    assert got.dtype is torch.double
    for b in range(B):
        for h in range(H):
            for t in range(length):
                i = keys - length + t
                for j in range(keys):
                    want = sum(math.log(gates[b][h][m]) for m in range(j + 1, i + 1))
                    assert got[b, h, t, j].item() == pytest.approx(want, abs=1e-6)


def test_the_whole_layer_is_the_recurrence_of_products_of_gates():
    """Eq. 4: weights are exp(q·k) times the product of the gates after the key, normalised."""
    parts, x = Parts("fox", causal=True), random(B, 5, H * D)
    layer = MultiheadAttention(H * D, H, parts.encoding).double().eval()
    layer.position_terms = parts.terms
    q, k, v, *_ = layer.project(x, {})
    got = attended_alone(layer, x, causal=True)
    mixed, gates = torch.zeros_like(v), gates_of(parts, x)
    for b in range(B):
        for h in range(H):
            for i in range(5):
                weights = [
                    math.exp(float(q[b, h, i] @ k[b, h, j]) / math.sqrt(D))
                    * math.prod(gates[b][h][j + 1 : i + 1])
                    for j in range(i + 1)
                ]
                for j, weight in enumerate(weights):
                    mixed[b, h, i] += weight / sum(weights) * v[b, h, j].detach()
    want = layer.out_proj(mixed.transpose(1, 2).reshape(B, 5, H * D))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_gates_that_are_open_forget_nothing():
    parts, x = Parts("fox", causal=True), random(B, 5, H * D)
    torch.nn.init.constant_(parts.terms["fox"].bias, 60.0)
    torch.nn.init.zeros_(parts.terms["fox"].weight)
    q, states = random(B, H, 5, D), parts.terms.key_states(x)
    assert parts.logits(q, q, x=x, key_states=states).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gates_are_summed_in_float32(dtype):
    skip_without_cpu_kernels(dtype)
    parts = Parts("fox", causal=True)
    parts.terms.to(dtype)
    x = torch.randn(1, 4096, H * D).to(dtype)
    states, keys = parts.terms.key_states(x), torch.zeros(1, H, 4096, D)
    (log_gates,) = states.values()
    assert log_gates.dtype is torch.float32
    got = parts.logits(keys[:, :, -1:], keys, x=x, key_states=states)[0, :, 0]
    exact = log_gates[0, :, :, 0].double()
    want = exact.sum(-1, keepdim=True) - exact.cumsum(-1)
    torch.testing.assert_close(got.double(), want, atol=1e-2, rtol=1e-5)


@torch.no_grad()
def test_outputs_are_those_of_the_authors_kernel(golden):
    """A kernel of half precision, whose outputs are the float64 formula's within 5e-4."""
    reference = golden("fox")
    heads, size = reference["config"]["heads"], reference["config"]["head_dim"]
    parts = Parts("fox", causal=True, heads=heads, head_dim=size)
    q, k, v, gates = (x.double() for x in reference["inputs"].values())
    log_gates = gates.sigmoid().log().unsqueeze(-1)
    logits = parts.logits(q, k, key_states={"fox_log_gates": log_gates})
    hidden = torch.full((q.size(2),) * 2, -math.inf, dtype=torch.double).triu(1)
    got = attend(q, k, v, size**-0.5, logits + hidden)
    torch.testing.assert_close(got.float(), reference["outputs"]["out"], atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["fox", "dape"])
@torch.no_grad()
def test_a_factor_of_the_length_leaves_logits_that_are_no_products(name):
    """Only q·k is multiplied by log n / log N."""
    parts, x = Parts(name, causal=True, log_length_scale=3), random(B, 5, H * D)
    layer = MultiheadAttention(H * D, H, parts.encoding).double().eval()
    layer.position_terms = parts.terms
    seen = torch.arange(1.0, 6.0).double()[None, None, :, None]
    factor = layer.length_factor(seen)
    torch.testing.assert_close(factor, seen.log() / math.log(3))
    hidden = torch.full((5, 5), -math.inf, dtype=torch.double).triu(1)[None, None]
    got = attended_alone(layer, x, causal=True)
    q, k, v, *_ = layer.project(x, {})
    scale, states = D**-0.5, parts.terms.key_states(x)
    own = parts.logits(q, k, scale, x=x, key_states=states)
    logits = q @ k.transpose(-1, -2) * scale * factor + own + hidden
    want = layer.out_proj((logits.softmax(-1) @ v).transpose(1, 2).reshape(B, 5, H * D))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_no_product_of_queries_and_keys_is_made_for_the_gates(monkeypatch):
    """The bias is one of a fused call."""
    monkeypatch.delattr(Content, "products")
    model = tiny("fox", "--encoder-position-encoding", "none")
    with torch.no_grad():
        model(sentences(2, 7), None, sentences(2, 9))


def test_the_gates_keep_their_bias_without_biases():
    model = tiny("simple:fox", "--encoder-position-encoding", "none")
    names = {n for n, _ in model.decoder.named_parameters() if "self_attn" in n and "bias" in n}
    assert names == {f"layers.{i}.self_attn.position_terms.fox.bias" for i in range(2)}


def test_an_encoder_is_refused():
    with pytest.raises(UsageError, match="fox needs a causal stack, because gates forget what is"):
        build("posenc_transformer", "--position-encoding", "fox")
