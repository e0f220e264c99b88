"""The T5 bias against its definition and against another implementation."""

import math

import numpy as np
import pytest
import torch
from support.formulas import bias_of, by_loops
from support.parts import encoding_of, places_of

from fairseq_posenc.encodings.t5 import relative_position_bucket as bucket


def bucket_by_hand(distance, num_buckets, max_distance, causal):
    """The bucket of one distance, key minus query, in words: exact, then logarithmic, then one."""
    if not causal:
        half = num_buckets // 2
        side = half if distance > 0 else 0
        return side + bucket_by_hand(-abs(distance), half, max_distance, True)
    back, exact = max(0, -distance), num_buckets // 2
    if back < exact:
        return back
    share = math.log(back / exact) / math.log(max_distance / exact)
    return min(num_buckets - 1, exact + int(share * (num_buckets - exact)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (16, 50)])
def test_t5_buckets_by_hand(num_buckets, max_distance, causal):
    distances = torch.arange(-200, 201)
    got = bucket(distances, num_buckets, max_distance, causal).tolist()
    want = [bucket_by_hand(d, num_buckets, max_distance, causal) for d in distances.tolist()]
    assert got == want


def test_t5_encoders_tell_both_sides_apart_and_decoders_do_not_need_to():
    there, back = torch.tensor([5]), torch.tensor([-5])
    assert bucket(there, 32, 128, False) != bucket(back, 32, 128, False)
    assert bucket(there, 32, 128, True) == bucket(torch.tensor([0]), 32, 128, True)


@pytest.mark.parametrize("causal", [False, True])
def test_logits_of_buckets_from_products(causal):
    flags = {"t5_products": True, "t5_num_buckets": 8, "t5_max_distance": 10}
    module, got = bias_of("t5", 12, 12, causal, **flags)
    parts = module.products

    def formula(h, i, j):
        r = parts.table.weight[bucket_by_hand(j - i, 8, 10, causal)]
        q, k = ((p.weight @ r).view(2, -1)[h] for p in (parts.q_proj, parts.k_proj))
        return (q @ k).item() / math.sqrt(2 * len(q))

    np.testing.assert_allclose(got, by_loops(formula, 12, 12), atol=1e-12)


@pytest.mark.parametrize("kind", ["bi", "uni"])
@pytest.mark.parametrize("size", [(32, 128), (16, 64), (64, 256), (32, 20)])
def test_buckets_are_those_of_transformers(golden, kind, size):
    ref = golden("t5_bucket")
    want = ref["outputs"]["{}_n{}_m{}".format(kind, *size)]
    got = bucket(ref["inputs"]["relative_position"], *size, kind == "uni")
    assert torch.equal(got, want)


@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_the_bias_is_that_of_transformers(golden, kind):
    """The reference has every 13th of 40 queries."""
    ref = golden("t5_bucket")
    flags = {"t5_num_buckets": 32, "t5_max_distance": 128, "causal": kind == "uni"}
    bias = encoding_of("t5", heads=2, **flags).shared_bias["t5"]
    with torch.no_grad():
        bias.table.weight.copy_(ref["state_dict"]["relative_attention_bias.weight"])
    got = bias(places_of(40))[0, :, ::13]
    torch.testing.assert_close(got, ref["outputs"][f"{kind}_bias"], atol=1e-6, rtol=0)
