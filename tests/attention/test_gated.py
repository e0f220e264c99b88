"""The gated attention unit and what goes with it, against their formulas."""

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
    """Sections 2.3 and 4.1 by loops; *weigh* turns the products of one query into weights.

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
    """The output of a unit that is told how many keys each query may see."""
    counts = allowed.sum(-1)[:, None, :, None].clamp(min=1).to(x.dtype)
    factor = layer.length_factor(counts) if layer.scales_by_length else None
    return layer(x, bias=bias, causal=causal, empty_rows=True, factor=factor)


def softmax(logits):
    top = max(logits.values())
    exps = {j: math.exp(x - top) for j, x in logits.items()}
    return {j: x / sum(exps.values()) for j, x in exps.items()}


def visible_cases():
    """(name, allowed (B, T, T), additive mask, causal flag)."""
    everything = torch.ones(B, T, T, dtype=torch.bool)
    padded = everything.clone()
    padded[1, :, 4:] = False
    causal = everything.tril()
    both = padded & causal
    for name, allowed, flag in (
        ("all", everything, False),
        ("padding", padded, False),
        ("causal", causal, True),
        ("both", both, False),
    ):
        mask = torch.zeros(B, 1, T, T, dtype=torch.double)
        mask = mask.masked_fill(~allowed[:, None], float("-inf"))
        yield pytest.param(allowed, None if name in ("all", "causal") else mask, flag, id=name)


@pytest.mark.parametrize("allowed, mask, causal", list(visible_cases()))
class TestNormalisers:
    def check(self, layer, allowed, mask, causal, weigh):
        x = torch.randn(B, T, C, dtype=torch.double)
        if causal and layer.causal_in_bias:
            mask, causal = torch.zeros(1, 1, T, T).masked_fill(~allowed[:1, None], -math.inf), False
        got = applied(layer, x, allowed, mask, causal)
        torch.testing.assert_close(got, by_hand(layer, x, allowed, weigh), atol=1e-6, rtol=1e-5)

    def test_softmax_plus_scales_by_the_logarithm_of_the_visible_keys(self, allowed, mask, causal):
        def weigh(seen):
            factor = math.log(len(seen)) / math.log(512) / math.sqrt(S)
            return softmax({j: factor * x for j, x in seen.items()})

        self.check(unit(), allowed, mask, causal, weigh)

    @pytest.mark.parametrize("offsets", [False, True])
    def test_softmax(self, offsets, allowed, mask, causal):
        def weigh(seen):
            return softmax({j: x / math.sqrt(S) for j, x in seen.items()})

        layer = unit(gau_normaliser="softmax", gau_offsets=offsets)
        self.check(layer, allowed, mask, causal, weigh)

    @pytest.mark.parametrize("length", ["visible", "reference"])
    @pytest.mark.parametrize("divisor", list(DIVISORS))
    def test_squared_relu_over_each_divisor_of_table_1(
        self, divisor, length, allowed, mask, causal
    ):
        layer = unit(gau_normaliser="squared_relu", gau_divisor=divisor, gau_length=length)

        def weigh(seen):
            n = len(seen) if length == "visible" else 512
            by = {"n*n": n * n, "n": n, "n*s": n * S, "s*s": S * S, "n*s*s": n * S * S}[divisor]
            return {j: max(x, 0) ** 2 / by for j, x in seen.items()}

        self.check(layer, allowed, mask, causal, weigh)

    def test_scaled_squared_relu_sums_to_one(self, allowed, mask, causal):
        def weigh(seen):
            total = sum(max(x, 0) ** 2 for x in seen.values())
            return {j: max(x, 0) ** 2 / total if total else 0 for j, x in seen.items()}

        self.check(unit(gau_normaliser="scaled_squared_relu"), allowed, mask, causal, weigh)


@pytest.mark.parametrize("divisor", ["n*n", "n*s*s"])
def test_small_squares_survive_autocast(divisor):
    """Under --amp products would be in float16, in which squares of 1e-4 are zero."""
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
        spread = parameter[parameter != 0].std().item()  # the row of padding is zero
        assert spread == pytest.approx(0.0176, rel=0.1), name  # of the truncated distribution


@pytest.mark.parametrize(
    "arch, vocabulary, millions, off",
    [
        ("roformer_masked_lm_base", 50000, 124.148, 1.5e-3),  # a table of positions more
        # its released code adds a pooler and a table of positions
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
