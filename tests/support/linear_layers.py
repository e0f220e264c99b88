"""Small layers, feature maps and models of linear attention, for tests."""

import pytest
import torch
from support.commands import SMALL
from support.helpers import LINEAR as LINEAR_ATTENTIONS
from support.helpers import ROTATING
from support.parts import attended_alone, encoding_flags

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.attention.linear import layer as linear
from fairseq_posenc.attention.linear import prefix_sums
from fairseq_posenc.attention.linear.prefix_sums import (
    attend_causally,
    attend_to_state,
    identity,
    summarize_keys,
)
from fairseq_posenc.encodings import PositionEncoding, Stack, parse_encodings

B, H, T, D, M = 2, 3, 7, 8, 12


def empty_state(v, features):
    """The state before the first token, for values (B, H, T, D) and M features."""
    b, h, _, d = v.shape
    return prefix_sums.KeySums(v.new_zeros(b, h, d, features), v.new_zeros(b, h, features))


#: variants of registered attentions: for each, the attention and its settings
FORMS = {
    "favor_relu": ("favor", {"favor_kernel": "relu"}),
    "favor_hyperbolic": ("favor", {"favor_kernel": "hyperbolic"}),
    "one_denominator": ("softmax_features", {"softmax_features_denominator": "query"}),
}
KERNELS = [*LINEAR_ATTENTIONS, *(name for name, form in FORMS.items() if form[0] in ATTENTIONS)]
ROTARY = ["none", "features", "inputs"]
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
    """The settings of a registered attention or of one of the :data:`FORMS`."""
    attention, settings = FORMS.get(kernel, (kernel, {}))
    settings = {"favor_features": M, "cosformer_length": 10000, **settings, **changes}
    return encoding_flags(**settings, attention=attention)


def feature_map(kernel, head_dim=D, **changes):
    options = options_of(kernel, **changes)
    return ATTENTIONS[options.attention].thing.map_class(head_dim, options, "encoder")


def layer_of(kernel, rotary=None, heads=H, head_dim=D, causal=False, **changes):
    """A layer outside of any model; *rotary* is, by default, ``features`` if possible."""
    if rotary is None:
        rotary = "features" if (kernel, "features") in every_rotation.args[1] else "none"
    rotated = "inputs" if rotary == "inputs" else "features"
    options = options_of(kernel, linear_rotary=rotated, **changes)
    kernel = ATTENTIONS[options.attention].thing
    size = kernel.map_class.size(head_dim, options) if rotary == "features" else head_dim
    stack = Stack("encoder", heads, size, causal, 16384, relative_after_rotation=rotary != "inputs")
    encodings = parse_encodings("none" if rotary == "none" else "rotary")
    return kernel(heads * head_dim, heads, PositionEncoding(encodings, options, stack)).eval()


def attend(q, k, v, causal, epsilon=1e-9, per_feature=False, turn=identity):
    """The outputs for all tokens at once; *q* and *k* are features."""
    if causal:
        return attend_causally(q, k, v, empty_state(v, q.size(3)), epsilon, per_feature, turn)[0]
    return attend_to_state(q, summarize_keys(k, v, turn), epsilon, per_feature, turn)


def cut(monkeypatch, layer, chunk, chunks):
    """Set chunks to *chunk* tokens, and segments of B sentences to *chunks* chunks.

    The backward pass then recomputes features, as it does for large batches.
    """
    monkeypatch.setattr(prefix_sums, "CHUNK", chunk)
    size = chunks * chunk * B * layer.num_heads * layer.features
    monkeypatch.setattr(linear, "SEGMENT", size)
    monkeypatch.setattr(linear, "RECOMPUTED_SEGMENT", size)
    monkeypatch.setattr(linear, "KEPT", 0)


def apply(layer, x, causal=False, padding=None, start=0, **more):
    """The output for *x* at positions from *start* on; padding (B, S) is True at padding."""
    return attended_alone(layer, x, causal, padding, start + x.size(1), **more)


PADDINGS = {
    "none": None,
    "left": torch.tensor([[True] * 3 + [False] * (T - 3), [False] * T]),
    "right": torch.tensor([[False] * 3 + [True] * (T - 3), [False] * T]),
    "all": torch.tensor([[True] * T, [False] * T]),
}


def projections(state):
    return {key: value for key, value in state.items() if key.endswith(".projection")}
