"""Encodings and kernels outside of any model, and attention computed with loops."""

import math
from argparse import Namespace

import torch

from fairseq_posenc.attention import ATTENTIONS, Batch, Padding
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.configuration.fields import layer_flags
from fairseq_posenc.encodings import (
    Places,
    PositionEncoding,
    Stack,
    check_encodings,
    parse,
    parse_encodings,
)
from fairseq_posenc.flags.settings import check_settings
from fairseq_posenc.stacks import positions


def encoding_flags(name="rotary", **changes):
    """Options for encodings and kernels: the defaults of all flags, except for *changes*."""
    defaults = {flag.name: flag.metadata["default"] for flag in layer_flags()}
    return Namespace(**{**defaults, **changes, "position_encoding": name})


def encoding_of(name, heads=4, head_dim=8, causal=False, has_cls=False, longest=64, **changes):
    """A composed encoding outside of any model."""
    stack = Stack("encoder", heads, head_dim, causal, longest, has_cls)
    options = encoding_flags(name, **changes)
    check_settings(options, layer_flags())
    check_encodings(options, stack, parse(name))
    return PositionEncoding(parse_encodings(name), options, stack)


def kernel_of(attention, encoding="none", heads=4, head_dim=8, **given):
    """A registered kernel outside of any model; see :func:`encoding_of`."""
    composed = encoding_of(encoding, heads, head_dim, attention=attention, **given)
    return ATTENTIONS[attention].thing(heads * head_dim, heads, composed).eval()


def places_of(length, keys=None):
    """The positions 0, 1, 2, … of *keys* tokens, of which the last *length* are queries."""
    keys = length if keys is None else keys
    positions = torch.arange(keys)[None]
    return Places(positions[:, keys - length :], positions, keys, by_index=True)


def prepared_by(layer, batch):
    """The keyword arguments that a stack prepares from a batch for a self-attention layer."""
    alone = Namespace(kinds={(0, 0): layer})
    return positions.PositionedStack.prepare(alone, batch)[0, 0]


def attended_alone(layer, x, causal=False, padding=None, length=None, **more):
    """The output (B, T, C) of a self-attention layer for x, the last T of *length* tokens.

    Args: padding (B, S) is True at padding; more are further arguments of the layer.
    """
    length = x.size(1) if length is None else length
    padding = Padding() if padding is None else positions.read_padding((padding, False))[0]
    return layer(x, **prepared_by(layer, Batch(x, length, padding, causal)), **more)


def slow_attention(q, k, v, scale, allowed, bias=None):
    """softmax(scale·q·k + bias) v in float64, by loops over the keys where *allowed* is True.

    Args: q (B, H, T, D), k and v (B, H, S, D), allowed (B, T, S) bool, bias (B, H, T, S) or None.
    """
    q, k, v = (x.detach().double() for x in (q, k, v))
    out = torch.zeros_like(q)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for i in range(q.size(2)):
                keys = [j for j in range(k.size(2)) if allowed[b][i][j]]
                if not keys:
                    continue
                extra = [float(bias[b, h, i, j]) if bias is not None else 0.0 for j in keys]
                logits = [scale * float(q[b, h, i] @ k[b, h, j]) + e for j, e in zip(keys, extra)]
                top = max(logits)
                exps = [math.exp(x - top) for x in logits]
                out[b, h, i] = sum(w / sum(exps) * v[b, h, j] for w, j in zip(exps, keys))
    return out


def storage_of(tensor):
    """The storage of a tensor, which may be larger than the tensor."""
    return tensor.untyped_storage() if TORCH_VERSION >= (2, 0) else tensor.storage()


def kept(run, *parameters):
    """Bytes that *run* saves for its backward pass, without the parameters."""
    tensors, own = [], {storage_of(x).data_ptr() for x in parameters}
    with torch.autograd.graph.saved_tensors_hooks(lambda x: tensors.append(x) or x, lambda x: x):
        out = run()
    storages = {storage_of(x).data_ptr(): storage_of(x).nbytes() for x in tensors}
    out.sum().backward()
    return sum(size for place, size in storages.items() if place not in own)
