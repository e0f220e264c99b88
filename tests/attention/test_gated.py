"""The gated attention unit, its normalisers and its presets, against reference functions."""

import math
from functools import partial

import pytest
import torch
from support.helpers import skip_without_cpu_kernels, tiny
from support.masked_language_models import build, count
from support.parts import encoding_of

from fairseq_posenc.attention.gated import DIVISORS, GatedAttention, squared_relu
from fairseq_posenc.layers.norms import RMSNorm

pytestmark = pytest.mark.formulas

C, S, B, T = 12, 8, 2, 7  # channels, key size, batch, length


def unit(encoding="none", **flags):
    composed = encoding_of(encoding, heads=1, head_dim=S, gau_key_size=S, **flags)
    layer = GatedAttention(C, 1, composed).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def by_hand(layer, x, allowed, weigh):
    """GAU sections 2.3 and 4.1 with loops; *weigh* maps the products of one query to weights.

    Args: x (B, T, C); allowed (B, T, T) bool; weigh takes {j: q·k} and returns {j: weight}.
    """
    e = 2 * C
    silu = torch.nn.functional.silu(x @ layer.in_proj.weight.t() + layer.in_proj.bias)
    u, v, z = silu[..., :e], silu[..., e : 2 * e], silu[..., 2 * e :]
    q, k = z * layer.q_scale, z * layer.k_scale
    if layer.q_offset is not None:
        q, k = q + layer.q_offset, k + layer.k_offset
    out = torch.zeros(B, T, C, dtype=torch.double)
    for b in range(B):
        for i in range(T):
            seen = {j: float(q[b, i] @ k[b, j]) for j in range(T) if allowed[b][i][j]}
            weights = weigh(seen)
            mixed = sum((w * v[b, j] for j, w in weights.items()), torch.zeros(e).double())
            out[b, i] = (u[b, i] * mixed) @ layer.out_proj.weight.t() + layer.out_proj.bias
    return out


def applied(layer, x, allowed, bias=None, causal=False):
    """The output of a unit, with the factor for the number of keys that each query may see."""
    counts = allowed.sum(-1)[:, None, :, None].clamp(min=1).to(x.dtype)
    factor = layer.length_factor(counts) if layer.scales_by_length else None
    return layer(x, bias=bias, causal=causal, empty_rows=True, factor=factor)


def softmax(logits):
    top = max(logits.values())
    exps = {j: math.exp(x - top) for j, x in logits.items()}
    return {j: x / sum(exps.values()) for j, x in exps.items()}


def visible_cases():
    """(allowed (B, T, T), additive mask, causal flag)."""
    everything = torch.ones(B, T, T, dtype=torch.bool)
    padded = everything.clone()
    padded[1, :, 4:] = False
    for allowed in (padded, padded.tril()):
        mask = torch.zeros(B, 1, T, T, dtype=torch.double)
        yield allowed, mask.masked_fill(~allowed[:, None], float("-inf")), False
    yield everything, None, False
    yield everything.tril(), None, True


def plus(seen):
    """Softmax plus: logits are scaled by the logarithm of the number of visible keys."""
    factor = math.log(len(seen)) / math.log(512) / math.sqrt(S)
    return softmax({j: factor * x for j, x in seen.items()})


def usual(seen):
    return softmax({j: x / math.sqrt(S) for j, x in seen.items()})


def squares(seen, divisor, length):
    """Squared ReLU with one of the divisors of Table 1."""
    n = len(seen) if length == "visible" else 512
    by = {"n*n": n * n, "n": n, "n*s": n * S, "s*s": S * S, "n*s*s": n * S * S}[divisor]
    return {j: max(x, 0) ** 2 / by for j, x in seen.items()}


def scaled_squares(seen):
    total = sum(max(x, 0) ** 2 for x in seen.values())
    return {j: max(x, 0) ** 2 / total if total else 0 for j, x in seen.items()}


#: settings of a unit, and the function that maps a query's products to weights
NORMALISERS = [
    ({}, plus),
    ({"gau_normaliser": "softmax"}, usual),
    ({"gau_normaliser": "softmax", "gau_offsets": True}, usual),
    ({"gau_normaliser": "scaled_squared_relu"}, scaled_squares),
]
for _divisor in DIVISORS:
    for _length in ("visible", "reference"):
        _flags = {"gau_divisor": _divisor, "gau_length": _length}
        _weigh = partial(squares, divisor=_divisor, length=_length)
        NORMALISERS.append(({"gau_normaliser": "squared_relu", **_flags}, _weigh))


@pytest.mark.parametrize("allowed, mask, causal", list(visible_cases()))
def test_units_are_their_formula(allowed, mask, causal):
    for flags, weigh in NORMALISERS:
        layer, x = unit(**flags), torch.randn(B, T, C, dtype=torch.double)
        bias, flag = mask, causal
        if causal and layer.causal_in_bias:
            bias, flag = torch.zeros(1, 1, T, T).masked_fill(~allowed[:1, None], -math.inf), False
        got, want = applied(layer, x, allowed, bias, flag), by_hand(layer, x, allowed, weigh)
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5, msg=str(flags))


@pytest.mark.parametrize("divisor", ["n*n", "n*s*s"])
def test_small_squares_survive_autocast(divisor):
    """Under --amp, products could be in float16, in which squares of 1e-4 are zero."""
    skip_without_cpu_kernels(torch.bfloat16)
    q, k = 0.1 * torch.randn(2, 1, 1, 512, S)
    n = torch.full((1, 1, 1, 1), 2048.0)
    weigh = partial(squared_relu, q, k, None, 1 / DIVISORS[divisor](n, S), scaled=False)
    with torch.autocast("cpu", torch.bfloat16):
        got = weigh()
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, weigh())


def test_simple_layers_have_no_bias_and_no_norm_parameters():
    model = build("roformer_v2_masked_lm_tiny")
    left = {name.rpartition(".")[2] for name, _ in model.named_parameters()}
    assert left == {"weight"}
    norms = [m for m in model.modules() if "Norm" in type(m).__name__]
    assert {type(m) for m in norms} == {RMSNorm} and len(norms) == 1 + 2 * 2
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 0.04, name
        spread = parameter[parameter != 0].std().item()  # the padding row is zero
        assert spread == pytest.approx(0.0176, rel=0.1), name  # truncated normal


@pytest.mark.parametrize(
    "arch, vocabulary, millions, off",
    [
        ("roformer_masked_lm_base", 50000, 124.148, 1.5e-3),  # ours has one position table more
        # the released code has a pooler and a position table in addition
        ("roformer_v2_masked_lm_base", 12000, 94.777 - 0.590 - 0.033, 1e-4),
        ("gau_masked_lm_base", 12000, 96.519, 3e-5),
    ],
)
def test_parameters_of_table_4(arch, vocabulary, millions, off):
    assert count(arch, vocabulary) / 1e6 == pytest.approx(millions, rel=off)


def test_both_units_of_a_decoder_layer_have_the_base_of_the_layer():
    flags = ("--rotary-base", "160000,100", "--decoder-layers", "4")
    model = tiny("gated:rotary", *flags)
    bases = [kernel.kind[1] for kernel in model.decoder.kernels()]
    assert bases == [160000, 160000, 100, 100] * 2
