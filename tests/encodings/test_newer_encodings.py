"""KERPLE, Sandwich, FIRE, xPos, CoPE and NEZHA against their papers' formulas in float64."""

import math
import re

import numpy as np
import pytest
import torch
from support.content_dependent import Parts
from support.helpers import encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Content

H, D = 2, 8
# query and key lengths: training, several tokens at once, one decoding step
LENGTHS = [(7, 7), (3, 7), (1, 7)]
lengths = pytest.mark.parametrize("length, keys", LENGTHS)


def bias_of(name, length, keys, causal=True, **flags):
    """A content-free encoding in float64 with random parameters, and its logits (H, T, S)."""
    encoding = encoding_of(name, heads=H, causal=causal, **flags)
    module = encoding.shared_bias[name].double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    positions = torch.arange(keys)[None]
    return module, module(positions[:, keys - length :], positions)[0].detach().numpy()


def by_loops(formula, length, keys):
    """formula(h, i, j) for the last *length* of *keys* queries, (H, T, S)."""
    queries = range(keys - length, keys)
    return np.array([[[formula(h, i, j) for j in range(keys)] for i in queries] for h in range(H)])


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# --- functions of the distance


@lengths
@pytest.mark.parametrize("kernel", ["power", "logarithmic"])
def test_kerple_by_hand(kernel, length, keys):
    module, got = bias_of("kerple", length, keys, kerple_kernel=kernel)
    scale, shape = module.scale.tolist(), module.shape.tolist()

    def formula(h, i, j):
        r1 = math.exp(scale[h])
        if kernel == "power":
            return -r1 * abs(i - j) ** (2 * sigmoid(shape[h]))
        return -r1 * math.log(1 + math.exp(shape[h]) * abs(i - j))

    np.testing.assert_allclose(got, by_loops(formula, length, keys), atol=1e-12)


@pytest.mark.parametrize("kernel", ["power", "logarithmic"])
def test_kerple_starts_as_the_released_code(kernel):
    """r1 and r2 are uniform: the power's below 1 and 2, the logarithm's below 2 and 1."""
    module = encoding_of("kerple", heads=4096, kerple_kernel=kernel).shared_bias["kerple"]
    r1 = module.scale.exp()
    r2 = 2 * module.shape.sigmoid() if kernel == "power" else module.shape.exp()
    most = (1.0, 2.0) if kernel == "power" else (2.0, 1.0)
    for values, bound in zip((r1, r2), most):
        assert 0.0099 < values.min() < 0.03 * bound and 0.99 * bound < values.max() <= bound
        assert values.mean().item() == pytest.approx(bound / 2, rel=0.05)


def test_the_penalty_of_kerple_stays_finite_in_float16():
    module = encoding_of("kerple", kerple_kernel="power").shared_bias["kerple"]
    torch.nn.init.constant_(module.shape, 9.0)  # |i - j|^2
    logits = module.by_distance(torch.tensor([0, 5000]))
    assert logits[:, 0].eq(0).all() and torch.isfinite(logits.half()).all()


@lengths
def test_sandwich_by_hand(length, keys):
    """p_i · p_j / (8h/H) up to a constant for each query, which no softmax sees."""
    _, got = bias_of("sandwich", length, keys, sandwich_dim=6)

    def formula(h, i, j):
        total = sum(math.cos((i - j) / 10000 ** (2 * t / 6)) for t in range(1, 4))
        return (total - 3) / (8 * (h + 1) / H)

    np.testing.assert_allclose(got, by_loops(formula, length, keys), atol=1e-7)


# --- FIRE


@lengths
@pytest.mark.parametrize("causal", [True, False])
def test_fire_by_hand(causal, length, keys):
    module, got = bias_of("fire", length, keys, causal, fire_width=5)
    c, threshold = module.log_c.exp().item(), module.log_length.exp().item()
    one, b1, two, b2 = (
        p.detach().numpy()
        for p in (module.weight_in, module.bias_in, module.weight_out, module.bias_out)
    )

    def psi(x):
        return math.log(c * x + 1)

    def formula(h, i, j):
        if j > i:  # in an encoder, i and j exchanged and the sign of the input
            x = 0.0 if causal else -psi(j - i) / psi(max(threshold, j))
        else:
            x = psi(i - j) / psi(max(threshold, i))
        return two[h] @ np.maximum(one * x + b1, 0) + b2[h]

    np.testing.assert_allclose(got, by_loops(formula, length, keys), atol=1e-12)


def test_fire_with_units_that_are_constant():
    module = encoding_of("fire", heads=H, causal=True).shared_bias["fire"].double()
    with torch.no_grad():
        module.weight_in[:3] = 0
        module.bias_in[:3] = torch.tensor([-1.0, 0.0, 2.0])
    x = torch.linspace(-1, 1, 9).double().view(1, 1, 9)
    hidden = (x[..., None] * module.weight_in + module.bias_in).relu()
    want = (hidden @ module.weight_out.t() + module.bias_out).permute(0, 3, 1, 2)
    torch.testing.assert_close(module.function(x), want)


# --- xPos


def xpos_of(head_dim=D, length=64, **flags):
    return encoding_of("xpos", heads=H, head_dim=head_dim, causal=True, **flags).transform


@pytest.mark.parametrize("flags", [{}, {"rotary_pairing": "half", "xpos_gamma": 0.7}])
def test_products_of_xpos_by_hand(flags):
    """Re[q̄ k e^{i(n-m)θ}] ζ^{(n-m)/B}, summed over pairs of channels."""
    base, length = 4.0, 20
    transform = xpos_of(xpos_scale_base=base, **flags)
    q, k = torch.randn(2, 1, length, 1, D).unbind()
    got_q, got_k, _ = transform(q, k, k, transform.table(torch.arange(length)[None]))
    got = torch.einsum("bthd,bshd->ts", got_q.double(), got_k.double())
    half, gamma = D // 2, flags.get("xpos_gamma", 0.4)
    for n in range(length):
        for m in range(n + 1):
            want = 0.0
            for t in range(half):
                pair = (t, t + half) if "rotary_pairing" in flags else (2 * t, 2 * t + 1)
                a, b = (complex(*x[0, i, 0, list(pair)].tolist()) for x, i in ((q, n), (k, m)))
                angle = (m - n) / 10000 ** (t / half)
                turn = complex(math.cos(angle), math.sin(angle))
                decay = ((t / half + gamma) / (1 + gamma)) ** ((n - m) / base)
                want += decay * (a.conjugate() * b * turn).real
            assert got[n, m].item() == pytest.approx(want, abs=1e-5)


def test_products_of_xpos_are_those_of_x_transformers(golden):
    reference = golden("xpos")
    transform = xpos_of(xpos_scale_base=16.0)
    q, k = (reference["inputs"][name].transpose(1, 2) for name in "qk")
    got_q, got_k, _ = transform(q, k, k, transform.table(torch.arange(q.size(1))[None]))
    got = torch.einsum("bthd,bshd->bhts", got_q, got_k).tril()
    torch.testing.assert_close(got, reference["outputs"]["products"], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    "flags, words",
    [
        ({"rotary_value": True}, "--rotary-value: xPos is defined without"),
        ({"rotary_scaling": "yarn"}, "--rotary-scaling: xPos is defined without"),
        ({"xpos_scale_base": 0.5}, "over the 64 positions .* float32, which holds"),
    ],
)
def test_what_xpos_cannot_do_is_refused(flags, words):
    with pytest.raises(UsageError, match=words):
        xpos_of(**flags)


def test_xpos_refuses_float16_where_its_scales_overflow():
    transform = xpos_of(xpos_scale_base=4.0)  # over 64 positions, up to 2^14
    table = transform.table(torch.arange(2)[None])
    q = torch.randn(1, 2, 1, D)
    transform(q.bfloat16(), q.bfloat16(), q.bfloat16(), table)
    with pytest.raises(UsageError, match="float16, which holds 44; give fewer positions"):
        transform(q.half(), q.half(), q.half(), table)


@pytest.mark.parametrize("name", ["xpos", "cope", "learned+xpos"])
def test_encoders_refuse_what_is_defined_for_decoders(name):
    with pytest.raises(UsageError, match=f"{re.escape(name)}: .*needs a causal stack"):
        encoding_of(name)


# --- CoPE


def cope_of(most=3):
    return Parts("cope", heads=H, head_dim=D, causal=True, cope_max_position=most)


@lengths
def test_cope_by_hand(length, keys):
    """With the first key of the second sentence hidden by padding."""
    parts, scale = cope_of(), 0.3
    q = torch.randn(2, H, length, D, dtype=torch.double)
    k = torch.randn(2, H, keys, D, dtype=torch.double)
    padding = torch.zeros(2, keys, dtype=torch.bool)
    padding[1, 0] = True
    got = parts.terms(Content(None, q, k, scale, None, None, padding), None, {})
    e = parts.terms["cope"].table.weight
    for b in range(2):
        for h in range(H):
            for t in range(length):
                i, seen = keys - length + t, q[b, h, t]
                gates = [sigmoid(scale * (seen @ k[b, h, m]).item()) for m in range(keys)]
                for j in range(b, i + 1):
                    p = min(3.0, sum(gates[j : i + 1]))
                    low = min(int(p), 2)
                    vector = e[low] + (p - low) * (e[low + 1] - e[low])
                    want = scale * (seen @ vector).item()
                    assert got[b, h, t, j].item() == pytest.approx(want, abs=1e-9)


def test_logits_of_cope_are_those_of_x_transformers(golden):
    reference = golden("cope")
    most = reference["config"]["cope_max_position"]
    parts = cope_of(most)
    with torch.no_grad():
        parts.terms["cope"].table.weight.copy_(reference["state_dict"]["e"])
    q, k = (reference["inputs"][name].double() for name in "qk")
    got = parts.logits(q, k, D**-0.5).tril() * D**0.5
    torch.testing.assert_close(got.float(), reference["outputs"]["logits"], atol=1e-5, rtol=1e-5)


# --- NEZHA


@lengths
def test_nezha_by_hand(length, keys):
    """Logits and values of clipped sinusoids, for encoders and decoders alike."""
    parts, clip = Parts("nezha", heads=H, head_dim=D, nezha_max_distance=4), 4
    q = torch.randn(1, H, length, D, dtype=torch.double)
    k = torch.randn(1, H, keys, D, dtype=torch.double)
    weights = torch.rand(1, H, length, keys, dtype=torch.double)

    def a(i, j):
        d = max(-clip, min(clip, j - i))
        angles = [d / 10000 ** (2 * t / D) for t in range(D // 2)]
        pairs = [(math.sin(x), math.cos(x)) for x in angles]
        return torch.tensor(pairs, dtype=torch.double).flatten()

    queries = range(keys - length, keys)
    vectors = torch.stack([torch.stack([a(i, j) for j in range(keys)]) for i in queries])
    want = 0.3 * torch.einsum("bhtd,tsd->bhts", q, vectors)
    torch.testing.assert_close(parts.logits(q, k, 0.3), want)
    got = parts.terms.relative_values(None, weights)
    torch.testing.assert_close(got, torch.einsum("bhts,tsd->bhtd", weights, vectors))
