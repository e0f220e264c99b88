"""Linformer against its formula in float64, a package, and what it has to refuse."""

import pytest
import torch
from support.helpers import skip_without_cpu_kernels
from support.masked_language_models import texts, tiny
from support.parts import attended_alone, check_gradients, kernel_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.packs.long_sequences.linformer import SHARING

pytestmark = pytest.mark.formulas
B, H, D, T, LONGEST, K = 2, 3, 4, 7, 9, 5
FLAGS = ["--attention", "linformer", "--linformer-size", "5"]
every_sharing = pytest.mark.parametrize("sharing", SHARING)


def layer_of(sharing="headwise", heads=H, channels=H * D, longest=LONGEST, size=K):
    given = {"linformer_size": size, "linformer_length": longest, "linformer_sharing": sharing}
    return kernel_of("linformer", "none", heads, channels // heads, longest=longest, **given)


def by_hand(layer, x, padding):
    """Eq. 7, a sentence without its padding and a head at a time."""
    out = torch.zeros_like(x)
    for b in range(len(x)):
        real = ~padding[b]
        tokens = x[b, real]
        q, k, v = (proj(tokens) for proj in (layer.q_proj, layer.k_proj, layer.v_proj))
        for h, part in enumerate(torch.arange(H * D).split(D)):
            e, f = (p[min(h, len(p) - 1)] for p in (layer.key_projection, layer.value_projection))
            keys, values = e[:, : len(tokens)] @ k[:, part], f[:, : len(tokens)] @ v[:, part]
            out[b, real.nonzero(), part] = (q[:, part] @ keys.t() / D**0.5).softmax(-1) @ values
    return layer.out_proj(out)


PADDINGS = [[False] * T, [True] * 3 + [False] * (T - 3), [False] * (T - 2) + [True] * 2, [True] * T]


@every_sharing
@torch.no_grad()
def test_the_layer_is_equation_7_without_the_padding(sharing):
    layer, padding = layer_of(sharing).double(), torch.tensor(PADDINGS)
    x = torch.randn(len(padding), T, H * D, dtype=torch.double)
    got = attended_alone(layer, x, padding=padding)
    want = by_hand(layer, x, padding)
    torch.testing.assert_close(got[~padding], want[~padding])
    nothing = layer.out_proj(torch.zeros(H * D).double())
    assert torch.equal(got[-1], nothing.expand(T, -1))  # zeros, where there is nothing but padding
    torch.testing.assert_close(attended_alone(layer, x)[0], got[0])


@every_sharing
def test_gradients(sharing):
    padding = torch.tensor(PADDINGS[1:])
    check_gradients(layer_of(sharing), torch.randn(3, T, H * D), padding=padding)


@torch.no_grad()
def test_the_package(golden):
    ref = golden("linformer")
    config, state, x = ref["config"], ref["state_dict"], ref["inputs"]["x"]
    layer = layer_of("headwise", config["heads"], x.size(-1), config["length"], config["size"])
    for name in "qkv":
        getattr(layer, f"{name}_proj").weight.copy_(state[f"to_{name}.weight"])
        getattr(layer, f"{name}_proj").bias.zero_()
    layer.key_projection.copy_(state["proj_k"].t())
    layer.value_projection.copy_(state["proj_v"].t())
    layer.out_proj.weight.copy_(state["to_out.weight"])
    layer.out_proj.bias.copy_(state["to_out.bias"])
    out = attended_alone(layer.double(), x.double())
    torch.testing.assert_close(out, ref["outputs"]["out"].double(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 5e-3), (torch.bfloat16, 5e-2)])
@torch.no_grad()
def test_half_precision_at_4096_tokens(dtype, tolerance):
    skip_without_cpu_kernels(dtype)
    layer, x = layer_of(longest=4096, size=64), torch.randn(1, 4096, H * D)
    want = attended_alone(layer, x)
    assert (
        attended_alone(layer.to(dtype), x.to(dtype))[0] - want
    ).abs().max() <= tolerance * want.abs().max()


def test_shared_projections():
    counts = {}
    for sharing in SHARING:
        model = tiny("none", *FLAGS, "--linformer-sharing", sharing)
        counts[sharing] = sum(p.numel() for p in model.parameters())
        model(texts())[0].sum().backward()
        assert all(p.grad is not None for n, p in model.named_parameters() if "proj" in n)
    one = 5 * 64  # of two layers with four heads
    more = [(2 * 2 * 4 - 1) * one, (2 * 2 - 1) * one, (2 - 1) * one, 0]
    assert [counts[name] - counts["layerwise"] for name in SHARING] == more


def test_longer_sequences_are_refused():
    with pytest.raises(UsageError, match="--linformer-length 64: a sequence has 65 tokens"):
        tiny("none", *FLAGS)(torch.full((1, 65), 7))


@pytest.mark.parametrize("value", ["all", "attention"])
def test_parameters_that_are_tied_in_a_layer_stay_so(value):
    model = tiny("none", *FLAGS, "--linformer-sharing", "key_value", "--share-layers", value)
    first, second = (layer.self_attn for layer in model.encoder.sentence_encoder.layers)
    for layer in (first, second):
        assert layer.key_projection is layer.value_projection is first.key_projection
