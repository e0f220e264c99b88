"""Logits of encodings by loops, from their papers' formulas, and encodings outside of models."""

import math

import numpy as np
import pytest
import torch
from support.parts import encoding_of, places_of

from fairseq_posenc.attention.functional import additive_mask, attend_with_weights
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.base import Content

B, H, D = 2, 2, 4
CLIPS = {"shaw_max_distance": 2, "deberta_max_distance": 3}
# query and key lengths: training, one decoding step, several tokens at once, the first token
LENGTHS = [(6, 6), (1, 6), (3, 6), (5, 6), (1, 1)]
lengths = pytest.mark.parametrize("length, keys", LENGTHS)
#: the registered encodings with terms in every layer
CONTENT = [name for name, entry in ENCODINGS.items() if entry.content]


def bias_of(name, length, keys, causal=True, **flags):
    """A content-free encoding in float64 with random parameters, and its logits (H, T, S)."""
    module = encoding_of(name, heads=H, causal=causal, **flags).shared_bias[name].double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module, module(places_of(length, keys))[0].detach().numpy()


def by_loops(formula, length, keys):
    """formula(h, i, j) for the last *length* of *keys* queries, (H, T, S)."""
    queries = range(keys - length, keys)
    return np.array([[[formula(h, i, j) for j in range(keys)] for i in queries] for h in range(H)])


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def rotation_matrix(m, dim, base=10000.0, pairing="interleaved"):
    """R_m of RoFormer Eq. 7 in float64, written out entry by entry."""
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(dim // 2):
        a, b = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + dim // 2)
        angle = m * base ** (-2.0 * i / dim)
        matrix[a, a] = matrix[b, b] = math.cos(angle)
        matrix[a, b], matrix[b, a] = -math.sin(angle), math.sin(angle)
    return matrix


class Parts:
    """The modules of an encoding outside of any model, in float64, with random parameters."""

    def __init__(self, name, **flags):
        self.encoding = encoding_of(name, **{"heads": H, "head_dim": D, **CLIPS, **flags})
        self.terms = self.encoding.build_content_bias().double()
        self.tables = self.encoding.vectors
        for module in (self.terms, self.tables):
            for parameter in module.parameters() if module else ():
                torch.nn.init.normal_(parameter)
        if self.tables:
            self.tables.double()

    def vectors(self, q, k):
        return self.encoding.distance_vectors(places_of(q.size(2), k.size(2)), q)

    def logits(self, q, k, scale=1.0, x=None, **more):
        content = Content(x, q, k, scale, places_of(q.size(2), k.size(2)), **more)
        return self.terms(content, self.vectors(q, k), {})


def clip(value, least, most):
    return max(least, min(most, value))


def shaw_by_hand(parts, h, i, j, q, k):
    """Shaw et al. Eq. 4, the second summand."""
    later = 0 if parts.encoding.stack.causal else 2
    row = parts.terms["shaw"].key_table.weight[clip(j - i, -2, later) + 2]
    return q @ (row[h * D : (h + 1) * D] if parts.encoding.options.shaw_per_head else row)


def transformer_xl_by_hand(parts, h, i, j, q, k):
    """RoFormer Eq. 34, the last three summands."""
    own, channels = parts.terms["transformer_xl"], H * D
    r = torch.zeros(channels, dtype=torch.double)
    for t in range(channels // 2):
        angle = (i - j) / 10000 ** (2 * t / channels)
        r[2 * t], r[2 * t + 1] = math.sin(angle), math.cos(angle)
    projected = (own.proj.weight @ r)[h * D : (h + 1) * D]
    return q @ projected + own.u[h, 0] @ k + own.v[h, 0] @ projected


def deberta_by_hand(parts, h, i, j, q, k):
    """DeBERTa Eq. 4, the last two summands, with δ of Eq. 3."""
    own, head = parts.terms["deberta"], slice(h * D, (h + 1) * D)

    def delta(i, j):
        return 0 if i - j <= -3 else 5 if i - j >= 3 else i - j + 3

    table = parts.tables["deberta"].table.weight
    to_position = q @ (own.k_proj.weight @ table[delta(i, j)])[head]
    from_key = (i, j) if parts.encoding.options.deberta_released else (j, i)
    return to_position + k @ (own.q_proj.weight @ table[delta(*from_key)])[head]


BY_HAND = {
    "shaw": shaw_by_hand,
    "transformer_xl": transformer_xl_by_hand,
    "deberta": deberta_by_hand,
}
NAMES = list(BY_HAND)


def by_hand(parts, q, k, positions=None):
    """Logits of all content-dependent encodings in *parts*, by loops; queries are the last.

    Keys have *positions* (B, S), by default 0, 1, 2 and so on.
    """
    if positions is None:
        positions = torch.arange(k.size(2)).expand(k.size(0), -1)
    out = torch.zeros(*q.shape[:3], k.size(2), dtype=torch.double)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for t in range(q.size(2)):
                for j in range(k.size(2)):
                    place = k.size(2) - q.size(2) + t
                    i, at = int(positions[b, place]), int(positions[b, j])
                    for name in set(parts.encoding.name.split("+")) & set(BY_HAND):
                        value = BY_HAND[name](parts, h, i, at, q[b, h, t], k[b, h, j])
                        out[b, h, t, j] += value.detach()
    return out


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)


def visible(case, inputs, length, keys):
    """The mask of a reference: causal, padded on the right, both or neither."""
    lengths = inputs["key_lens"] if "padded" in case else torch.full((3,), keys)
    padding = torch.arange(keys) >= lengths[:, None]
    real = (torch.arange(length) < lengths[:, None])[..., None, None]  # of equally many queries
    like = inputs["q"]
    return additive_mask(length, keys, "causal" in case, padding, like), real


def attended(parts, inputs, mask):
    """Output (B, T, H, D) and weights (B, H, T, S) for references laid out as (B, T, H, D)."""
    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    scale, terms = parts.encoding.scale, parts.terms.float()
    content = Content(None, q, k, scale, places_of(q.size(2), k.size(2)))
    logits = terms(content, parts.vectors(q, k), {})
    more = (lambda w: terms.relative_values(content, w)) if terms.needs_weights else None
    out, weights = attend_with_weights(q, k, v, scale, mask + logits, relative_values=more)
    return out.transpose(1, 2), weights


def assert_attends_as(reference, case, parts, length, keys):
    """Compare output and weights with a stored reference of fairseq2, at its real queries."""
    inputs, outputs = reference["inputs"], reference["outputs"]
    mask, real = visible(case, inputs, length, keys)
    out, weights = attended(parts, inputs, mask)
    for got, want, shown in (
        (out, outputs[case], real),
        (weights, outputs[case + "_weights"], real.transpose(1, 2)),
    ):
        torch.testing.assert_close(got * shown, want * shown, atol=1e-5, rtol=1e-5)
