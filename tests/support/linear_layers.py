"""Layers, feature maps and models of linear attention, small, for the tests of it."""

import math
from argparse import Namespace

import pytest
import torch
from support.commands import SMALL
from support.helpers import LINEAR as LINEAR_ATTENTIONS
from support.helpers import ROTATING, encoding_flags

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.attention.linear import layer as linear
from fairseq_posenc.attention.linear import prefix_sums
from fairseq_posenc.attention.linear.prefix_sums import (
    attend_causally,
    attend_to_state,
    empty_state,
    identity,
    summarize_keys,
)
from fairseq_posenc.encodings import PositionEncoding, Stack, parse_encodings

B, H, T, D, M = 2, 3, 7, 8, 12
#: other forms of registered attentions: of which, and by which settings
FORMS = {
    "favor_relu": ("favor", {"favor_kernel": "relu"}),
    "favor_hyperbolic": ("favor", {"favor_kernel": "hyperbolic"}),
    "one_denominator": ("softmax_features", {"softmax_features_denominator": "query"}),
}
KERNELS = [*LINEAR_ATTENTIONS, *FORMS]
ROTARY = ["none", "features", "inputs"]
LINEAR = {
    "linear_rotary": "features",
    "linear_epsilon": 1e-9,
    "favor_kernel": "softmax",
    "favor_features": M,
    "favor_epsilon": None,
    "favor_seed": 1,
    "favor_redraw": 0,
    "favor_redraw_until": 0,
    "cosformer_length": 10000,
    "softmax_features_denominator": "feature",
}
PERFORMER = ["--arch", "performer_tiny", *SMALL]
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
every_rotation = pytest.mark.parametrize(
    "kernel, rotary",
    [
        (kernel, rotary)
        for kernel in KERNELS
        for rotary in ROTARY
        if rotary != "features" or FORMS.get(kernel, (kernel,))[0] in ROTATING
    ],
)
either_direction = pytest.mark.parametrize("causal", [False, True])


def options_of(kernel, **changes):
    attention, settings = FORMS.get(kernel, (kernel, {}))
    return {**LINEAR, **settings, **changes, "attention": attention}


def feature_map(kernel, head_dim=D, **changes):
    options = options_of(kernel, **changes)
    kernel = ATTENTIONS[options["attention"]].thing
    return kernel.map_class(head_dim, Namespace(**options), "encoder")


def layer_of(kernel, rotary=None, heads=H, head_dim=D, causal=False, **changes):
    """A layer of its own, with or without rotary: by default, with rotated features if it can."""
    if rotary is None:
        rotary = "features" if (kernel, "features") in every_rotation.args[1] else "none"
    rotated = "inputs" if rotary == "inputs" else "features"
    options = options_of(kernel, linear_rotary=rotated, **changes)
    flags = encoding_flags("none" if rotary == "none" else "rotary", **options)
    kernel = ATTENTIONS[flags.attention].thing
    size = kernel.map_class.size(head_dim, flags) if rotary == "features" else head_dim
    stack = Stack("encoder", heads, size, causal, 16384, relative_after_rotation=rotary != "inputs")
    encodings = parse_encodings(flags.position_encoding)
    return kernel(heads * head_dim, heads, PositionEncoding(encodings, flags, stack)).eval()


def attend(q, k, v, causal, epsilon=1e-9, per_feature=False, turn=identity):
    """Outputs of features, all at once."""
    if causal:
        return attend_causally(q, k, v, empty_state(v, q.size(3)), epsilon, per_feature, turn)[0]
    return attend_to_state(q, summarize_keys(k, v, turn), epsilon, per_feature, turn)


def cut(monkeypatch, layer, chunk, chunks):
    """Give chunks so many tokens, and segments of a batch of B sentences so many chunks."""
    monkeypatch.setattr(prefix_sums, "CHUNK", chunk)
    size = chunks * chunk * B * layer.num_heads * layer.features
    monkeypatch.setattr(linear, "SEGMENT", size)


def padding_bias(padding):
    """(B, S), True at padding, as the additive mask that stacks hand over."""
    return torch.zeros(padding.shape).masked_fill_(padding, -math.inf)[:, None, None]


def apply(layer, x, bias=None, causal=False, table=None, start=0, **more):
    """The output for tokens *x* at the positions from *start*."""
    positions = torch.arange(start, start + x.size(1))[None]
    return layer(x, bias, causal, table, query_positions=positions, **more)


def in_steps(layer, x, table, steps, padding=None):
    """The output for tokens *x*, of which a cache sees *steps* at a time, and the cache."""
    state, outputs, seen = {}, [], 0
    for step in steps:
        end = seen + step
        bias = None if padding is None else padding_bias(padding[:, :end])
        part = None if table is None else table[:, seen:end]
        assert layer.cached_length(state) == seen
        new = x[:, seen:end]
        outputs.append(apply(layer, new, bias, True, part, seen, incremental_state=state))
        seen = end
    return torch.cat(outputs, 1), state


PADDINGS = {
    "none": None,
    "left": torch.tensor([[True] * 3 + [False] * (T - 3), [False] * T]),
    "right": torch.tensor([[False] * 3 + [True] * (T - 3), [False] * T]),
    "all": torch.tensor([[True] * T, [False] * T]),
}


def table_of(layer, length):
    """The rotation of *length* positions from 0, or None without rotary."""
    transform = layer.encoding.transform
    return None if transform is None else transform.table(torch.arange(length)[None])


def projections(state):
    return {key: value for key, value in state.items() if key.endswith(".projection")}
