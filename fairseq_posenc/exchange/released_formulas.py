"""RoFormerV2 and GAU-alpha as released, computed from their formulas in float64.

Deliberately independent of the package's layers: ``--verify`` compares the two, since transformers
has neither model.  Each sequence is computed separately and without its padding, which all released
versions mask.

RoFormer, Su et al., arXiv 2104.09864, Eq. 13 to 16; "Implementation and Experiments for GAU-based
Model", Liu (called GAU below), sections 2.3 and 4.1.
"""

import math
from typing import Any, Callable, Dict

import torch
from fairseq import utils
from torch import Tensor

from fairseq_posenc.exchange.reader import ForeignParameters

#: Logits of the last states (T, C) of one sequence.
Head = Callable[[Tensor], Tensor]
#: The content of config.json.
Entries = Dict[str, Any]

#: Name of the reference in the output of ``--verify``.
FORMULAS = "the released model's formulas in float64 (transformers has no such class)"

#: Attention weights from logits of T keys each (GAU sections 2.3 and 3.2).
NORMALISERS: Dict[str, Callable[[Tensor], Tensor]] = {
    "softmax_plus": lambda a: (a * math.log(len(a)) / math.log(512)).softmax(-1),
    "softmax": lambda a: a.softmax(-1),
    "squared_relu": lambda a: a.clamp(min=0).pow(2) / len(a),
}


def released_logits(
    layer: Callable[[ForeignParameters, Entries, str, Tensor], Tensor],
    prefix: str,
    parameters: ForeignParameters,
    entries: Entries,
    head: Head,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function from tokens, segments and the mask of real tokens, (B, T) each, to logits.

    Args:
        layer: :func:`gated_layer` or :func:`transformer_layer`.
        prefix: prefix of the parameter names.
        parameters: by their released names.
        entries: the content of config.json.
        head: logits of one sequence, per token (T, …) or as a whole.
    """
    model = {name: value.double() for name, value in parameters.items()}
    given = {key: value for key, value in entries.items() if value is not None}
    entries = {"layer_norm_eps": 1e-12, **given}

    def one(tokens: Tensor, segments: Tensor) -> Tensor:
        x = model[prefix + "embeddings.word_embeddings.weight"][tokens]
        x = x + model[prefix + "embeddings.token_type_embeddings.weight"][segments]
        x = _norm(x, entries["layer_norm_eps"])
        for number in range(entries["num_hidden_layers"]):
            x = layer(model, entries, f"{prefix}encoder.layer.{number}.", x)
        return head(x)

    def logits(tokens: Tensor, segments: Tensor, real: Tensor) -> Tensor:
        rows = []
        for row, kept in enumerate(real):
            out = one(tokens[row][kept], segments[row][kept])
            if out.dim() == 2:  # logits per token: zeros at padding
                padded = out.new_zeros(len(kept), out.size(1))
                padded[kept] = out
                out = padded
            rows.append(out)
        return torch.stack(rows)

    return logits


def tied_head(weight: Tensor) -> Head:
    """Projection by the transposed token embedding."""
    return lambda x: x @ weight.double().t()


def first_position(weight: Tensor, bias: Tensor) -> Head:
    """Classification of the first position."""
    return lambda x: weight.double() @ x[0] + bias.double()


def gated_layer(model: ForeignParameters, entries: Entries, name: str, x: Tensor) -> Tensor:
    """A gated attention unit with its norm, (T, C) to (T, C) (GAU section 4.1)."""
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
    """A layer of RoFormerV2, (T, C) to (T, C), one head at a time."""
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
    """Rotate channels 2i and 2i + 1 of position m by m · 10000^(-2i/D), (T, D) to (T, D)."""
    positions = torch.arange(len(x), dtype=x.dtype)
    rates = 10000.0 ** -(torch.arange(0, x.size(1), 2, dtype=x.dtype) / x.size(1))
    sine, cosine = (positions[:, None] * rates).sin(), (positions[:, None] * rates).cos()
    out = torch.empty_like(x)
    out[:, 0::2] = x[:, 0::2] * cosine - x[:, 1::2] * sine
    out[:, 1::2] = x[:, 0::2] * sine + x[:, 1::2] * cosine
    return out
