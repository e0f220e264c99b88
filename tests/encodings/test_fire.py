"""FIRE against its paper's formulas in float64."""

import math

import numpy as np
import pytest
import torch
from support.formulas import H, bias_of, by_loops, lengths
from support.parts import encoding_of


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
