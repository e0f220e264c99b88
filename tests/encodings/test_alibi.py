"""ALiBi against its definition and against other implementations."""

import numpy as np
import pytest
import torch
from support.formulas import H, bias_of, by_loops, lengths
from support.parts import encoding_of, places_of

from fairseq_posenc.encodings.alibi import slopes


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_alibi_slopes_are_a_geometric_sequence(heads):
    assert slopes(heads) == pytest.approx([2 ** (-8 * h / heads) for h in range(1, heads + 1)])


@lengths
@pytest.mark.parametrize("causal", [False, True])
def test_alibi_is_a_penalty_per_token_of_distance(causal, length, keys):
    _, got = bias_of("alibi", length, keys, causal)
    want = by_loops(lambda h, i, j: -(2 ** (-8 * (h + 1) / H)) * abs(i - j), length, keys)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("heads", [4, 6, 8, 12])
def test_alibi_is_that_of_other_implementations(golden, heads):
    """BLOOM's rises towards the query, and is another constant for each query."""
    out = golden("alibi")["outputs"]
    torch.testing.assert_close(torch.tensor(slopes(heads)), out[f"slopes_h{heads}"].flatten())
    bias = encoding_of("alibi", heads=heads).shared_bias["alibi"]
    for length, name in ((9, f"bias_h{heads}"), (5, f"bias_h{heads}_last5")):
        torch.testing.assert_close(bias(places_of(length, 9))[0], out[name], atol=1e-5, rtol=0)
    theirs = out[f"bloom_bias_h{heads}"]
    want = theirs - theirs.transpose(1, 2)
    torch.testing.assert_close(bias(places_of(9))[0].tril(), want.tril(), atol=1e-5, rtol=0)
