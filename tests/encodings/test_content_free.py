"""ALiBi and the T5 bias against their definitions and against other implementations."""

import math

import pytest
import torch
from support.helpers import encoding_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.alibi import slopes
from fairseq_posenc.encodings.t5 import relative_position_bucket as bucket


def positions(length):
    return torch.arange(length)[None]


def bias_of(name, queries, keys, heads=4, causal=False, **flags):
    encoding = encoding_of(name, heads=heads, causal=causal, **flags)
    return encoding.shared_bias[name](queries, keys)


@pytest.mark.parametrize("heads", [1, 2, 8, 16])
def test_alibi_slopes_are_a_geometric_sequence(heads):
    assert slopes(heads) == pytest.approx([2 ** (-8 * h / heads) for h in range(1, heads + 1)])


def test_alibi_is_a_penalty_per_token_of_distance():
    bias = bias_of("alibi", positions(5)[:, 3:], positions(5), heads=2)
    for h, slope in enumerate((2**-4, 2**-8)):
        for i in range(2):
            want = [-slope * abs(i + 3 - j) for j in range(5)]
            assert bias[0, h, i].tolist() == pytest.approx(want)


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


@pytest.mark.parametrize(
    "flags, words",
    [
        ({"t5_num_buckets": 3, "t5_max_distance": 128}, "--t5-num-buckets 3: must be even"),
        ({"t5_num_buckets": 32, "t5_max_distance": 8}, "--t5-max-distance 8: must be above 8"),
    ],
)
def test_t5_flags_that_leave_no_room_are_refused(flags, words):
    with pytest.raises(UsageError, match=words):
        bias_of("t5", positions(4), positions(4), **flags)


class TestOtherImplementations:
    @pytest.mark.parametrize("heads", [4, 6, 8, 12])
    def test_alibi(self, golden, heads):
        out = golden("alibi")["outputs"]
        keys = positions(9)
        torch.testing.assert_close(torch.tensor(slopes(heads)), out[f"slopes_h{heads}"].flatten())
        for queries, name in ((keys, f"bias_h{heads}"), (keys[:, -5:], f"bias_h{heads}_last5")):
            got = bias_of("alibi", queries, keys, heads=heads)[0]
            torch.testing.assert_close(got, out[name], atol=1e-5, rtol=0)

    @pytest.mark.parametrize("heads", [4, 6, 8, 12])
    def test_alibi_of_bloom(self, golden, heads):
        """Theirs rises towards the query, and is another constant for each query."""
        keys = positions(9)
        theirs = golden("alibi")["outputs"][f"bloom_bias_h{heads}"]
        want = theirs - theirs.transpose(1, 2)
        got = bias_of("alibi", keys, keys, heads=heads)[0]
        torch.testing.assert_close(got.tril(), want.tril(), atol=1e-5, rtol=0)

    @pytest.mark.parametrize("kind", ["bi", "uni"])
    @pytest.mark.parametrize("size", [(32, 128), (16, 64), (64, 256), (32, 20)])
    def test_t5_buckets(self, golden, kind, size):
        ref = golden("t5_bucket")
        want = ref["outputs"]["{}_n{}_m{}".format(kind, *size)]
        got = bucket(ref["inputs"]["relative_position"], *size, kind == "uni")
        assert torch.equal(got, want)

    @pytest.mark.parametrize("kind", ["bi", "uni"])
    def test_t5_bias(self, golden, kind):
        """The reference has every 13th of 40 queries."""
        ref = golden("t5_bucket")
        flags = {"t5_num_buckets": 32, "t5_max_distance": 128, "causal": kind == "uni"}
        bias = encoding_of("t5", heads=2, **flags).shared_bias["t5"]
        with torch.no_grad():
            bias.table.weight.copy_(ref["state_dict"]["relative_attention_bias.weight"])
        got = bias(positions(40), positions(40))[0, :, ::13]
        torch.testing.assert_close(got, ref["outputs"][f"{kind}_bias"], atol=1e-6, rtol=0)


# --- what TUPE tried, section 5


@torch.no_grad()
def test_free_logits_of_two_positions():
    encoding = encoding_of("tupe", heads=3, tupe_free=True, untie_cls=True, has_cls=True)
    module = encoding.shared_bias["tupe"]
    assert module.free.shape == (3, 64, 64) and sum(1 for _ in module.parameters()) == 1
    padded = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])  # two sentences, one padded
    got = module(padded[:, 2:], padded)
    for b in range(2):
        for t in range(3):
            want = module.free[:, padded[b, t + 2], padded[b]]
            assert torch.equal(got[b, :, t], want)


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_logits_of_buckets_from_products(causal):
    flags = {"t5_products": True, "t5_num_buckets": 8, "t5_max_distance": 10, "causal": causal}
    module = encoding_of("t5", heads=2, head_dim=4, **flags).shared_bias["t5"].double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    parts = module.products
    got = module(positions(12), positions(12))[0]
    for i in range(12):
        for j in range(12):
            r = parts.table.weight[bucket_by_hand(j - i, 8, 10, causal)]
            q, k = ((p.weight @ r).view(2, 4) for p in (parts.q_proj, parts.k_proj))
            torch.testing.assert_close(got[:, i, j], (q * k).sum(-1) / math.sqrt(8))
