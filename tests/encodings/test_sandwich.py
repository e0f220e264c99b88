"""Sandwich against its paper's formula in float64."""

import math

import numpy as np
from support.formulas import H, bias_of, by_loops, lengths


@lengths
def test_sandwich_by_hand(length, keys):
    """p_i · p_j / (8h/H) up to a constant for each query, which no softmax sees."""
    _, got = bias_of("sandwich", length, keys, sandwich_dim=6)

    def formula(h, i, j):
        total = sum(math.cos((i - j) / 10000 ** (2 * t / 6)) for t in range(1, 4))
        return (total - 3) / (8 * (h + 1) / H)

    np.testing.assert_allclose(got, by_loops(formula, length, keys), atol=1e-7)
