"""CoPE against its paper's formulas in float64 and against another implementation."""

import pytest
import torch
from support.formulas import Parts, lengths, sigmoid

H, D = 2, 8


def cope_of(most=3):
    return Parts("cope", heads=H, head_dim=D, causal=True, cope_max_position=most)


@lengths
def test_cope_by_hand(length, keys):
    """The first key of the second sentence is hidden by padding."""
    parts, scale = cope_of(), 0.3
    q = torch.randn(2, H, length, D, dtype=torch.double)
    k = torch.randn(2, H, keys, D, dtype=torch.double)
    padding = torch.zeros(2, keys, dtype=torch.bool)
    padding[1, 0] = True
    got = parts.logits(q, k, scale, padding_mask=padding)
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
