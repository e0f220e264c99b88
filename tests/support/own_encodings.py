"""Encodings of the tests' own, one for each place that no shipped encoding uses yet.

They are what a user would write to add an encoding: a class for the place, and an entry.
"""

import torch
from support.own_extensions import files, registries_as_before
from torch import nn

from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.base import ContentBias, Encoding, SharedBias


class DistancePenalty(SharedBias):
    """-slope_h · |i - j|, one learned slope a head: content-free and relative."""

    def __init__(self, options, stack):
        super().__init__(options, stack)
        self.slope = nn.Parameter(torch.linspace(0.1, 1.0, stack.num_heads))

    def forward(self, query_positions, key_positions):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        return -self.slope[:, None, None] * distance[:, None]


class PositionProducts(SharedBias):
    """p_i · p_j of a learned table: content-free and absolute, so padding must not shift it."""

    def __init__(self, options, stack):
        super().__init__(options, stack)
        self.table = nn.Embedding(stack.max_positions, 4)

    def forward(self, query_positions, key_positions):
        q, k = self.table(query_positions), self.table(key_positions)
        return torch.matmul(q, k.transpose(-1, -2))[:, None]


class ClippedDistanceKeys(ContentBias):
    """q_i · a_{clip(j - i)}, scaled as q_i · k_j, a table in every layer: content-dependent."""

    def __init__(self, options, stack):
        super().__init__(options, stack)
        self.table = nn.Embedding(9, stack.head_dim)

    def forward(self, content, vectors=None):
        q = content.q
        products = torch.matmul(q * content.scale, self.table.weight.t())  # (B, H, T, 9)
        distance = content.key_positions[:, None, :] - content.query_positions[:, :, None]
        index = distance.clamp(-4, 4) + 4
        index = index[:, None].expand(q.size(0), q.size(1), -1, -1)
        return products.gather(-1, index)


def entry(name, hook, **properties):
    return Encoding(name, "none", hook.__doc__, hook, **properties)


OWN = {
    e.name: e
    for e in (
        entry("own_shared", DistancePenalty),
        entry("own_absolute", PositionProducts, logit_scale=0.5**0.5, relative=False),
        entry("own_layer", ClippedDistanceKeys),
    )
}

with registries_as_before():  # the encodings of docs/adding.md without flags
    for name in ("decay", "learned_rotary"):
        exec(compile(files()[f"mine/{name}.py"], name, "exec"), {"__name__": f"mine.{name}"})
        OWN[name] = ENCODINGS[name]
