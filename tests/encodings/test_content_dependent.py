"""Shaw, Transformer-XL and DeBERTa against their papers' formulas and other implementations."""

import math
from argparse import Namespace

import pytest
import torch
from support.content_dependent import CLIPS, LENGTHS, NAMES, B, D, H, Parts, by_hand, clip, random
from support.helpers import encoding_of

from fairseq_posenc.attention.functional import attend_with_weights
from fairseq_posenc.attention.gated import GatedAttention, length_factor
from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.encodings.base import Content
from fairseq_posenc.encodings.nezha import sinusoids
from tests.attention.test_gated import FLAGS
from tests.encodings.test_rotary import rotation_matrix


@pytest.mark.parametrize("length, keys", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "deberta+shaw+transformer_xl"])
def test_logits_are_those_of_the_paper(name, causal, length, keys):
    parts = Parts(name, causal=causal)
    q, k = random(B, H, length, D), random(B, H, keys, D)
    got = parts.logits(q, k, scale=0.3)
    torch.testing.assert_close(got, 0.3 * by_hand(parts, q, k), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("length, keys", LENGTHS)
@pytest.mark.parametrize("name, flag", [("shaw", "shaw_per_head"), ("deberta", "deberta_released")])
def test_logits_of_the_other_forms_by_hand(name, flag, length, keys):
    parts = Parts(name, **{flag: True})
    q, k = random(B, H, length, D), random(B, H, keys, D)
    torch.testing.assert_close(parts.logits(q, k), by_hand(parts, q, k), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "name, factor",
    [
        ("shaw", 1),
        ("transformer_xl", 1),
        ("deberta", 3),
        ("tupe+shaw", 2),
        ("learned+transformer_xl", 1),
        ("rotary+shaw", 1),
        ("rotary+deberta", 3),
        ("transformer_xl+tupe+deberta", 6),
    ],
)
def test_the_whole_layer_by_hand(name, factor):
    """One scale on all products with content; what turns queries and keys turns q·k alone."""
    parts, length = Parts(name), 5
    layer = MultiheadAttention(H * D, H, parts.encoding).double().eval()
    layer.position_terms = parts.terms
    x = random(B, length, H * D)
    transform = parts.encoding.transform
    table = transform.table(torch.arange(length)[None]) if transform else None
    q, k, v = (
        projection(x).view(B, length, H, D).transpose(1, 2)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    got, _ = layer(x, table=table, distance_vectors=parts.vectors(q, k))

    turned = [q, k]
    if "rotary" in name:
        turn = [rotation_matrix(m, D) for m in range(length)]
        turned = [torch.stack([y[:, :, m] @ turn[m].t() for m in range(length)], 2) for y in (q, k)]
    logits = turned[0] @ turned[1].transpose(-1, -2) + by_hand(parts, q, k)
    mixed = (logits / math.sqrt(factor * D)).softmax(-1) @ v
    want = layer.out_proj(mixed.transpose(1, 2).reshape(B, length, H * D))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("length, keys", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
def test_shaws_values_by_hand(per_head, causal, length, keys):
    """Shaw et al. Eq. 3, the second summand."""
    parts = Parts("shaw", causal=causal, shaw_values=True, shaw_per_head=per_head)
    weights = random(B, H, length, keys)
    got = parts.terms.relative_values(None, weights)
    table = parts.terms["shaw"].value_table.weight
    want = torch.zeros(B, H, length, D, dtype=torch.double)
    for t in range(length):
        for j in range(keys):
            row = clip(j - (keys - length + t), -2, 0 if causal else 2) + 2
            vectors = table[row].view(-1, D)  # one, or one for each head
            want[:, :, t] += weights[:, :, t, j, None] * vectors
    torch.testing.assert_close(got, want)


def test_values_that_are_added_see_the_weights_after_dropout():
    q, k, v, more = (torch.randn(B, H, 5, D) for _ in range(4))
    outs = []
    for values, function in ((v, lambda weights: weights @ more), (v + more, None)):
        torch.manual_seed(1)
        outs.append(
            attend_with_weights(q, k, values, 1.0, dropout=0.5, relative_values=function)[0]
        )
    torch.testing.assert_close(*outs)


def test_dropped_weights_reach_shaws_values():
    parts = Parts("shaw", shaw_values=True)
    layer = MultiheadAttention(H * D, H, parts.encoding, dropout=1.0 - 1e-7).double()
    x = random(B, 5, H * D)
    got, _ = layer(x)
    torch.testing.assert_close(got, layer.out_proj(torch.zeros_like(x)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normaliser", ["softmax_plus", "softmax"])
def test_gated_units_by_hand(name, normaliser):
    """All products with content take the factor of softmax_plus, log n / log of the reference."""
    encoding = encoding_of(name, heads=1, head_dim=H * D, **CLIPS)
    options = {**FLAGS, "gau_key_size": H * D, "gau_normaliser": normaliser}
    unit = GatedAttention(6, encoding, Namespace(**options, position_encoding=name)).double()
    x, length = random(B, 4, 6), 4
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(1, 1, length, length, dtype=torch.double).masked_fill(~allowed, -math.inf)
    q, k, v, *_, u = unit.project(x, None)
    vectors = encoding.distance_vectors(length, length, q)
    seen = torch.arange(1, length + 1).double().view(-1, 1)
    factor = length_factor(Namespace(**options), seen)
    got, _ = unit(x, mask, distance_vectors=vectors, length_factor=factor)

    extra = unit.position_terms(Content(x, q, k, 1.0, None, None), vectors, {})  # as tested above
    logits = (q @ k.transpose(-1, -2) + extra) * encoding.scale
    assert extra.abs().max() > 1e-3
    factor = seen.log() / math.log(512) if normaliser == "softmax_plus" else 1.0
    mixed = (logits * factor).masked_fill(~allowed, -math.inf).softmax(-1) @ v
    want = unit.out_proj(u * mixed.squeeze(1))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_a_table_made_in_inference_serves_a_training():
    sinusoids.cache_clear()
    with torch.inference_mode():
        table = sinusoids(3, 4, torch.float32, torch.device("cpu"))
    assert not table.is_inference()
