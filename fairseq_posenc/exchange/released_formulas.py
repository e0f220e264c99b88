"""Reference implementations of the released RoFormerV2, GAU-alpha and TUPE, in float64.

This code is deliberately independent of the package's layers: ``--verify`` compares the layers with
this code, since transformers has none of these models.  Each sequence is computed separately.  The
released models mask padding; here, padding is removed in RoFormerV2 and GAU-alpha.

RoFormer, Su et al., Neurocomputing 568, 2024, Eq. 5 to 8 (in arXiv 2104.09864, 13 to 16);
"Implementation and Experiments for GAU-based Model", Liu (called GAU below), sections 2.3 and 4.1;
TUPE, Ke, He, Liu, arXiv 2006.15595, Eq. 7, 10 and 11, with the details of the released code.
"""

import math
from typing import Any, Callable, Dict, Mapping

import torch
from fairseq import utils
from torch import Tensor
from torch.nn import functional as F

from fairseq_posenc.exchange.formats import ForeignModel
from fairseq_posenc.exchange.reader import ForeignParameters

#: The content of config.json.
Entries = Dict[str, Any]

_PAD = 1
_STACK = "decoder.sentence_encoder."

#: Functions from logits (T, T) to attention weights (T, T) (GAU sections 2.3 and 3.2).
NORMALISERS: Dict[str, Callable[[Tensor], Tensor]] = {
    "softmax_plus": lambda a: (a * math.log(len(a)) / math.log(512)).softmax(-1),
    "softmax": lambda a: a.softmax(-1),
    "squared_relu": lambda a: a.clamp(min=0).pow(2) / len(a),
}


def encoder_model(
    layer: Callable[[ForeignParameters, Entries, str, Tensor], Tensor],
    parameters: ForeignParameters,
    entries: Entries,
    order: Tensor,
    output: str,
) -> ForeignModel:
    """A reference model with layers of :func:`gated_layer` or :func:`transformer_layer`.

    Args:
        order: the foreign number of each symbol of fairseq's dictionary, (V,).
        output: ``classifier``, for the classifier of the first position, or the name of the output
            projection for every token; if this weight is absent, the embedding replaces it.
    """
    prefix = entries["model_type"] + "."
    given = {key: value for key, value in entries.items() if value is not None}
    entries = {"layer_norm_eps": 1e-12, **given}

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        model, rows = {name: value.double() for name, value in parameters.items()}, []
        words = model[prefix + "embeddings.word_embeddings.weight"]
        for row, real in enumerate(tokens.ne(_PAD)):
            x = words[order[tokens[row][real]]]
            x = x + model[prefix + "embeddings.token_type_embeddings.weight"][segments[row][real]]
            x = _norm(x, entries["layer_norm_eps"])
            for number in range(entries["num_hidden_layers"]):
                x = layer(model, entries, f"{prefix}encoder.layer.{number}.", x)
            if output == "classifier":
                rows.append(model["classifier.weight"] @ x[0] + model["classifier.bias"])
                continue
            padded = x.new_zeros(len(real), len(order))  # zeros at padding
            padded[real] = x @ model.get(output, words)[order].t()
            rows.append(padded)
        return torch.stack(rows)

    name = "the released model, computed in float64 (transformers has no such class)"
    return ForeignModel(logits, name)


def gated_layer(model: ForeignParameters, entries: Entries, name: str, x: Tensor) -> Tensor:
    """The output (T, C) of a gated attention unit and its norm for x (T, C) (GAU section 4.1)."""
    width, size = entries["intermediate_size"], entries["attention_key_size"]
    inner = x @ model[name + "gau.i_dense.weight"].t()
    inner = inner * inner.sigmoid()
    u, v, z = inner[:, :width], inner[:, width : 2 * width], inner[:, 2 * width :]
    q, k = (_rotate(z * model[f"{name}gau.{side}_scaleoffset.weight"]) for side in "qk")
    products = q @ k.t()
    if entries.get("attention_scale", True):
        products = products / math.sqrt(size)
    weights = NORMALISERS[entries.get("normalization", "softmax_plus")](products)
    out = (u * (weights @ v)) @ model[name + "gau.o_dense.weight"].t()
    return _norm(x + out, entries["layer_norm_eps"])


def transformer_layer(model: ForeignParameters, entries: Entries, name: str, x: Tensor) -> Tensor:
    """The output (T, C) of a layer of RoFormerV2 for x (T, C), computed head by head."""
    eps, size = entries["layer_norm_eps"], x.size(1) // entries["num_attention_heads"]
    q, k, v = (
        x @ model[f"{name}attention.self.{part}.weight"].t() for part in ("query", "key", "value")
    )
    heads = []
    for start in range(0, x.size(1), size):
        part = slice(start, start + size)
        weights = (_rotate(q[:, part]) @ _rotate(k[:, part]).t() / math.sqrt(size)).softmax(-1)
        values = _rotate(v[:, part]) if entries.get("rotary_value") else v[:, part]
        heads.append(weights @ values)
    attended = torch.cat(heads, dim=1) @ model[name + "attention.output.dense.weight"].t()
    x = _norm(x + attended, eps)
    activation = utils.get_activation_fn(entries["hidden_act"])
    inner = activation(x @ model[name + "intermediate.dense.weight"].t())
    return _norm(x + inner @ model[name + "output.dense.weight"].t(), eps)


def _norm(x: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def _rotate(x: Tensor) -> Tensor:
    """Rotate channels 2i and 2i + 1 of x (T, D) at position m by the angle m · 10000^(-2i/D)."""
    positions = torch.arange(len(x), dtype=x.dtype)
    rates = 10000.0 ** -(torch.arange(0, x.size(1), 2, dtype=x.dtype) / x.size(1))
    turns = torch.polar(torch.ones(()).to(x), positions[:, None] * rates)
    pairs = torch.view_as_complex(x.reshape(len(x), -1, 2))
    return torch.view_as_real(pairs * turns).flatten(1)


class ReleasedTUPE:
    """A released TUPE model; tokens are numbered as in the dictionary of the release.

    Args:
        parameters: the parameters, under their released names.
        flags: a mapping with ``encoder_attention_heads``, ``activation_fn``, ``max_rel_pos``,
            ``encoder_normalize_before``, ``pooler_activation_fn`` and ``attn_scale_factor``.
    """

    def __init__(self, parameters: ForeignParameters, flags: Mapping[str, Any]) -> None:
        self.parameters = {key: value.double() for key, value in parameters.items()}
        self.flags = flags
        self.activation = utils.get_activation_fn(flags["activation_fn"])

    def features(self, tokens: Tensor) -> Tensor:
        """Output (B, T, C) of the encoder for tokens (B, T)."""
        bias = self._bias(tokens.size(1))
        return torch.stack([self._states(row, bias) for row in tokens])

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) for tokens (B, T)."""
        x = self.activation(self._linear("decoder.lm_head.dense", self.features(tokens)))
        x = self._norm("decoder.lm_head.layer_norm", x)
        embedding = self.parameters[_STACK + "embed_tokens.weight"]
        return F.linear(x, embedding, self.parameters["decoder.lm_head.bias"])

    def classes(self, tokens: Tensor, head: str) -> Tensor:
        """Logits (B, N) of the classification head *head*, which reads the first position."""
        x, name = self.features(tokens)[:, 0], f"classification_heads.{head}."
        if name + "dense.weight" in self.parameters:
            pooler = utils.get_activation_fn(self.flags["pooler_activation_fn"])
            x = pooler(self._linear(name + "dense", x))
        return self._linear(name + "out_proj", x)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.parameters[name + ".weight"], self.parameters[name + ".bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """x after the layer norm *name*; x itself if the model has no such norm."""
        if name + ".weight" not in self.parameters:
            return x
        weight, bias = (self.parameters[f"{name}.{part}"] for part in ("weight", "bias"))
        return F.layer_norm(x, weight.shape, weight, bias)

    def _bias(self, length: int) -> Tensor:
        """The logits (H, T, T) that depend on positions alone."""
        heads, factor = self.flags["encoder_attention_heads"], self.flags["attn_scale_factor"]
        rows = self._norm(_STACK + "pos_ln", self.parameters[_STACK + "pos.weight"][: length + 1])
        if _STACK + "pos_proj.weight" in self.parameters:
            q, k = self._linear(_STACK + "pos_proj", rows).chunk(2, dim=-1)
        else:
            q, k = (self._linear(f"{_STACK}pos_{side}_linear", rows) for side in "qk")
        # q · k of row 0 is θ1, for queries at [CLS]; q · k of row 1 is θ2, for keys at [CLS]
        pairs = [(i, j) for i in range(length) for j in range(length)]
        row = [0 if i == 0 else 1 if j == 0 else i + 1 for i, j in pairs]
        column = [0 if i == 0 else 1 if j == 0 else j + 1 for i, j in pairs]
        products = [of_q @ of_k.t() for of_q, of_k in zip(q.chunk(heads, -1), k.chunk(heads, -1))]
        divisor = math.sqrt(factor * q.size(-1) / heads)
        bias = torch.stack([of_head[row, column] / divisor for of_head in products])
        relative = self.parameters.get(_STACK + "relative_attention_bias.weight")
        if relative is not None:
            last, farthest = len(relative) - 1, self.flags["max_rel_pos"]
            index = [
                last // 2 if i == 0 else last if j == 0 else _bucket(j - i, last, farthest)
                for i, j in pairs
            ]
            bias = bias + relative[index].t()
        return bias.view(heads, length, length)

    def _states(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Output (T, C) of the encoder for one sequence (T,)."""
        before, padding = self.flags["encoder_normalize_before"], tokens.eq(_PAD)
        x = self.parameters[_STACK + "embed_tokens.weight"][tokens]
        x = self._norm(_STACK + "emb_layer_norm", x).masked_fill(padding.unsqueeze(1), 0.0)
        layer = 0
        while f"{_STACK}layers.{layer}.fc1.weight" in self.parameters:
            name = f"{_STACK}layers.{layer}."
            first, last = name + "self_attn_layer_norm", name + "final_layer_norm"
            y = self._norm(first, x) if before else x
            y = self._attention(name + "self_attn.", y, bias, padding)
            x = x + y if before else self._norm(first, x + y)
            y = self._norm(last, x) if before else x
            y = self._linear(name + "fc2", self.activation(self._linear(name + "fc1", y)))
            x = x + y if before else self._norm(last, x + y)
            layer += 1
        return self._norm(_STACK + "emb_out_layer_norm", x)

    def _attention(self, name: str, x: Tensor, bias: Tensor, padding: Tensor) -> Tensor:
        """Multi-head attention in one sequence x (T, C), with *bias* (H, T, T) in the logits."""
        weight, offset = (self.parameters[f"{name}in_proj_{kind}"] for kind in ("weight", "bias"))
        parts = (x @ weight.t() + offset).chunk(3, -1)
        divisor = math.sqrt(self.flags["attn_scale_factor"] * x.size(1) / len(bias))
        heads = []
        for q, k, v, extra in zip(*(part.chunk(len(bias), -1) for part in parts), bias):
            scores = (q @ k.t() / divisor + extra).masked_fill(padding, -math.inf)
            heads.append(scores.softmax(-1) @ v)
        return self._linear(name + "out_proj", torch.cat(heads, dim=1))


def _bucket(distance: int, buckets: int, farthest: int) -> int:
    """T5's bidirectional bucket of a distance, key minus query."""
    half = buckets // 2
    exact = half // 2
    steps = abs(distance)
    if steps >= exact:
        growth = math.log(steps / exact) / math.log(farthest / exact)
        steps = min(exact + int(growth * (half - exact)), half - 1)
    return steps + (half if distance > 0 else 0)
