"""Outputs of a released TUPE model from its formulas, in float64, one head at a time.

Deliberately independent of the package's layers: ``--verify`` compares the two.  TUPE, Ke, He,
Liu, arXiv 2006.15595, Eq. 7, 10 and 11, with the details of the released code.
"""

import math
from typing import Any, Callable, Mapping

import torch
from fairseq import utils
from torch import Tensor
from torch.nn import functional as F

from fairseq_posenc.exchange.reader import ForeignParameters

Activation = Callable[[Tensor], Tensor]
_PAD = 1
_STACK = "decoder.sentence_encoder."


class ReleasedModel:
    """A released model; symbols are numbered as in its own dictionary.

    Args:
        parameters: by their released names.
        flags: reads ``encoder_attention_heads``, ``activation_fn``, ``encoder_normalize_before``,
            ``pooler_activation_fn``, ``max_rel_pos`` and ``attn_scale_factor``.
    """

    def __init__(self, parameters: ForeignParameters, flags: Mapping[str, Any]) -> None:
        self.parameters = {key: value.double() for key, value in parameters.items()}
        self.flags = flags
        self.activation = utils.get_activation_fn(flags["activation_fn"])

    def features(self, tokens: Tensor) -> Tensor:
        """Output of the encoder (B, T, C) for tokens (B, T)."""
        bias = _bias(self.parameters, self.flags, tokens.size(1))
        rows = [_one(self.parameters, self.flags, row, bias, self.activation) for row in tokens]
        return torch.stack(rows)

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) for tokens (B, T)."""
        model = self.parameters
        x = self.activation(_linear(model, "decoder.lm_head.dense", self.features(tokens)))
        x = _norm(model, "decoder.lm_head.layer_norm", x)
        return F.linear(x, model[_STACK + "embed_tokens.weight"], model["decoder.lm_head.bias"])

    def classes(self, tokens: Tensor, head: str) -> Tensor:
        """Logits (B, N) of the classification head *head*, which reads the first position."""
        x, name = self.features(tokens)[:, 0], f"classification_heads.{head}."
        if name + "dense.weight" in self.parameters:
            pooler = utils.get_activation_fn(self.flags["pooler_activation_fn"])
            x = pooler(_linear(self.parameters, name + "dense", x))
        return _linear(self.parameters, name + "out_proj", x)


def _linear(model: ForeignParameters, name: str, x: Tensor) -> Tensor:
    return x @ model[name + ".weight"].t() + model[name + ".bias"]


def _norm(model: ForeignParameters, name: str, x: Tensor) -> Tensor:
    if name + ".weight" not in model:
        return x
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return centred / (variance + 1e-5).sqrt() * model[name + ".weight"] + model[name + ".bias"]


def _bucket(distance: int, buckets: int, farthest: int) -> int:
    """T5's bidirectional bucket of key minus query."""
    half = buckets // 2
    exact = half // 2
    steps = abs(distance)
    if steps >= exact:
        growth = math.log(steps / exact) / math.log(farthest / exact)
        steps = min(exact + int(growth * (half - exact)), half - 1)
    return steps + (half if distance > 0 else 0)


def _bias(model: ForeignParameters, flags: Mapping[str, Any], length: int) -> Tensor:
    """Content-free logits (H, T, T)."""
    heads = flags["encoder_attention_heads"]
    rows = _norm(model, _STACK + "pos_ln", model[_STACK + "pos.weight"][: length + 1])
    if _STACK + "pos_proj.weight" in model:
        q, k = _linear(model, _STACK + "pos_proj", rows).chunk(2, dim=-1)
    else:
        q, k = (_linear(model, f"{_STACK}pos_{side}_linear", rows) for side in "qk")
    size = q.size(-1) // heads
    # rows 0 and 1, each with itself, give θ1, from [CLS], and θ2, to [CLS]
    pairs = [(i, j) for i in range(length) for j in range(length)]
    row = [0 if i == 0 else 1 if j == 0 else i + 1 for i, j in pairs]
    column = [0 if i == 0 else 1 if j == 0 else j + 1 for i, j in pairs]
    parts = [slice(head * size, (head + 1) * size) for head in range(heads)]
    divisor = math.sqrt(flags["attn_scale_factor"] * size)
    products = [q[:, part] @ k[:, part].t() / divisor for part in parts]
    bias = torch.stack([of_head[row, column] for of_head in products])
    relative = model.get(_STACK + "relative_attention_bias.weight")
    if relative is not None:
        last, farthest = len(relative) - 1, flags["max_rel_pos"]
        index = [
            last // 2 if i == 0 else last if j == 0 else _bucket(j - i, last, farthest)
            for i, j in pairs
        ]
        bias = bias + relative[index].t()
    return bias.view(heads, length, length)


def _one(
    model: ForeignParameters,
    flags: Mapping[str, Any],
    tokens: Tensor,
    bias: Tensor,
    activation: Activation,
) -> Tensor:
    """Output of the encoder (T, C) for one sequence (T,)."""
    before, factor = flags["encoder_normalize_before"], flags["attn_scale_factor"]
    padding = tokens.eq(_PAD)
    x = _norm(model, _STACK + "emb_layer_norm", model[_STACK + "embed_tokens.weight"][tokens])
    x = x.masked_fill(padding.unsqueeze(1), 0.0)
    layer = 0
    while f"{_STACK}layers.{layer}.fc1.weight" in model:
        name = f"{_STACK}layers.{layer}."
        first, last = name + "self_attn_layer_norm", name + "final_layer_norm"
        y = _attention(model, name, _norm(model, first, x) if before else x, bias, padding, factor)
        x = x + y if before else _norm(model, first, x + y)
        y = activation(_linear(model, name + "fc1", _norm(model, last, x) if before else x))
        y = _linear(model, name + "fc2", y)
        x = x + y if before else _norm(model, last, x + y)
        layer += 1
    return _norm(model, _STACK + "emb_out_layer_norm", x)


def _attention(
    model: ForeignParameters, layer: str, x: Tensor, bias: Tensor, padding: Tensor, factor: float
) -> Tensor:
    """Multi-head attention of one sequence (T, C) with content-free logits (H, T, T)."""
    name = layer + "self_attn."
    q, k, v = (x @ model[name + "in_proj_weight"].t() + model[name + "in_proj_bias"]).chunk(3, -1)
    size = x.size(1) // len(bias)
    heads = []
    for head, extra in enumerate(bias):
        part = slice(head * size, (head + 1) * size)
        scores = q[:, part] @ k[:, part].t() / math.sqrt(factor * size) + extra
        heads.append(scores.masked_fill(padding, -math.inf).softmax(-1) @ v[:, part])
    return _linear(model, name + "out_proj", torch.cat(heads, dim=1))
