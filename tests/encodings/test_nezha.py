"""NEZHA's clipped sinusoids against its paper's formulas in float64."""

import math

import torch
from support.formulas import Parts, lengths
from support.parts import places_of

from fairseq_posenc.encodings.base import Content
from fairseq_posenc.encodings.nezha import vectors

H, D = 2, 8


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
    got = parts.terms.relative_values(Content(None, q, k, 1.0, places_of(length, keys)), weights)
    torch.testing.assert_close(got, torch.einsum("bhts,tsd->bhtd", weights, vectors))


def test_a_table_made_in_inference_serves_a_training():
    vectors.cache_clear()
    with torch.inference_mode():
        table = vectors(3, 4, torch.float32, torch.device("cpu"))
    assert not table.is_inference()
