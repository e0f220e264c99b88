"""KERPLE against its paper's formulas in float64, and the released code's first values."""

import math

import numpy as np
import pytest
import torch
from support.formulas import bias_of, by_loops, lengths, sigmoid
from support.parts import encoding_of


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
        assert values.min().item() == pytest.approx(0.01, rel=1e-4)
        assert 0.99 * bound < values.max() <= bound
        assert values.mean().item() == pytest.approx(bound / 2, rel=0.05)


def test_the_penalty_of_kerple_stays_finite_in_float16():
    module = encoding_of("kerple", kerple_kernel="power").shared_bias["kerple"]
    torch.nn.init.constant_(module.shape, 9.0)  # |i - j|^2
    logits = module.by_distance(torch.tensor([0, 5000]))
    assert logits[:, 0].eq(0).all() and torch.isfinite(logits.half()).all()
