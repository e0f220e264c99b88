"""Mixed chunk attention against loops in float64, and its cache of constant size."""

import pytest
import torch
from support.formulas import rotation_matrix
from support.helpers import through_a_cache
from support.parts import attended_alone, check_gradients, encoding_of

from fairseq_posenc.packs.long_sequences.mixed_chunks import MixedChunkAttention
from tests.attention.test_gated import C, S

pytestmark = pytest.mark.formulas
T, CHUNK = 11, 4
PADDINGS = {
    "none": None,
    "left": torch.tensor([[True] * 3 + [False] * (T - 3), [False] * T, [True] * T]),
    "right": torch.tensor([[False] * (T - 5) + [True] * 5, [False] * T, [True] * T]),
}
either_direction = pytest.mark.parametrize("causal", [False, True])
every_padding = pytest.mark.parametrize("padding", PADDINGS)


def unit(encoding="rotary", chunk=CHUNK, **flags):
    flags = {"gau_key_size": S, "gau_normaliser": "squared_relu", "gau_chunk": chunk, **flags}
    composed = encoding_of(encoding, heads=1, head_dim=S, **flags)
    layer = MixedChunkAttention(C, 1, composed).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.eval()


def by_hand(layer, x, causal, padding, rotated, reference=None):
    """The formula by loops, the chunks counted from the first real token."""
    e, out = 2 * C, torch.zeros_like(x)
    turn = [rotation_matrix(m, S) if rotated else torch.eye(S).double() for m in range(T)]
    for b in range(len(x)):
        real = [m for m in range(T) if padding is None or not padding[b, m]]
        silu = torch.nn.functional.silu(layer.in_proj(x[b]))
        u, v, z = silu[:, :e], silu[:, e : 2 * e], silu[:, 2 * e :]
        chunk = {m: i // layer.chunk for i, m in enumerate(real)}

        def product(m, n, prefix="", z=z):
            q, k = (
                z[i] * getattr(layer, f"{prefix}{name}_scale")
                + getattr(layer, f"{prefix}{name}_offset")
                for i, name in ((m, "q"), (n, "k"))
            )
            return (turn[m] @ q) @ (turn[n] @ k)

        for m in real:
            near = [n for n in real if chunk[n] == chunk[m] and (n <= m or not causal)]
            far = [n for n in real if chunk[n] < chunk[m] or not causal]
            mixed = torch.zeros(e).double()
            for n in near:
                mixed += product(m, n).relu() ** 2 / ((reference or len(near)) * S) * v[n]
            for n in far:
                mixed += product(m, n, "linear_") / ((reference or len(far)) * S**0.5) * v[n]
            out[b, m] = u[m] * mixed @ layer.out_proj.weight.t()
    return out + layer.out_proj.bias


@either_direction
@every_padding
@pytest.mark.parametrize("encoding, length", [("rotary", "visible"), ("none", "reference")])
@torch.no_grad()
def test_the_unit_is_its_formula(encoding, length, padding, causal):
    x, mask = torch.randn(3, T, C).double(), PADDINGS[padding]
    for chunk in (CHUNK, 1, 20):
        layer = unit(encoding, chunk, gau_length=length, gau_reference_length=9, gau_offsets=True)
        got = attended_alone(layer, x, causal, mask)
        reference = 9 if length == "reference" else None
        want = by_hand(layer, x, causal, mask, encoding == "rotary", reference)
        # counts are float32; the outputs of padding are zeros before the last projection
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_the_cache_does_not_grow():
    """tests/test_properties.py compares its outputs."""
    states = [through_a_cache(unit(), torch.randn(2, n, C).double(), [n])[1] for n in (3, 11)]
    sizes = [[x.shape for x in next(iter(state.values())).values()][:5] for state in states]
    assert sizes[0] == sizes[1]


@torch.no_grad()
def test_steps_of_decoding_drop_keys_as_the_whole_does():
    """With dropout that stays active in evaluation, keys of earlier chunks are dropped as well."""
    layer, x = unit("none"), torch.randn(1, CHUNK + 1, C).double()
    layer.dropout_module.p, layer.dropout_module.apply_during_inference = 0.5, True
    layer.q_scale.zero_()  # nothing within chunks
    draws = x.expand(4000, -1, -1)
    whole = attended_alone(layer, draws, True)[:, -1]
    steps = through_a_cache(layer, draws, [1] * (CHUNK + 1))[0][:, -1]
    error = (whole.var(0) / 4000 + steps.var(0) / 4000).sqrt()
    assert (whole.mean(0) - steps.mean(0)).abs().le(5 * error).all()
    torch.testing.assert_close(steps.std(0), whole.std(0), atol=0, rtol=0.2)


@either_direction
def test_gradients(causal):
    check_gradients(unit(gau_offsets=True), torch.randn(3, T, C), causal, PADDINGS["left"])
