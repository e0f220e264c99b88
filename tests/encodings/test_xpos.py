"""xPos against its paper's formulas in float64 and against another implementation."""

import math

import pytest
import torch
from support.parts import encoding_of

from fairseq_posenc.basics.errors import UsageError

D = 8


def xpos_of(head_dim=D, length=64, **flags):
    return encoding_of("xpos", heads=2, head_dim=head_dim, causal=True, **flags).transform


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


def test_xpos_refuses_float16_where_its_scales_overflow():
    transform = xpos_of(xpos_scale_base=4.0)  # over 64 positions, up to 2^14
    table = transform.table(torch.arange(2)[None])
    q = torch.randn(1, 2, 1, D)
    transform(q.bfloat16(), q.bfloat16(), q.bfloat16(), table)
    with pytest.raises(UsageError, match="float16, which holds 44; give fewer positions"):
        transform(q.half(), q.half(), q.half(), table)
