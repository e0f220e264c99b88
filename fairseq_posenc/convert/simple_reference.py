"""What released GAU-alpha and RoFormerV2 models compute, from their formulas, in float64.

Independent of the package's own layers on purpose: ``--verify`` compares the two, since
transformers has neither model.  One sequence at a time and without its padding, which no released
form lets a real token see.

RoFormer, Su et al., arXiv 2104.09864, Eq. 13 to 16; "Implementation and Experiments for GAU-based
Model", Liu (called GAU below), sections 2.3 and 4.1.
"""

import math
from typing import Any, Callable, Dict

import torch
from fairseq import utils
from torch import Tensor

#: Logits of the last states (T, C) of one sequence.
Head = Callable[[Tensor], Tensor]
Config = Dict[str, Any]
State = Dict[str, Tensor]

#: Attention weights from logits of T keys each (GAU sections 2.3 and 3.2).
NORMALISERS: Dict[str, Callable[[Tensor], Tensor]] = {
    "softmax_plus": lambda a: (a * math.log(len(a)) / math.log(512)).softmax(-1),
    "softmax": lambda a: a.softmax(-1),
    "squared_relu": lambda a: a.clamp(min=0).pow(2) / len(a),
}


def released_logits(
    layer: Callable[[State, Config, str, Tensor], Tensor],
    prefix: str,
    state: State,
    config: Config,
    head: Head,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Logits of tokens, segments and what of them is no padding, (B, T) each.

    Args:
        layer: :func:`gated_layer` or :func:`transformer_layer`.
        prefix: what the names of the parameters start with.
        state: the parameters, by their released names.
        config: content of config.json.
        head: logits of one sequence, (T, …) or of the whole.
    """
    model = {name: value.double() for name, value in state.items()}
    given = {key: value for key, value in config.items() if value is not None}
    config = {"layer_norm_eps": 1e-12, **given}

    def one(tokens: Tensor, segments: Tensor) -> Tensor:
        x = model[prefix + "embeddings.word_embeddings.weight"][tokens]
        x = x + model[prefix + "embeddings.token_type_embeddings.weight"][segments]
        x = _norm(x, config["layer_norm_eps"])
        for number in range(config["num_hidden_layers"]):
            x = layer(model, config, f"{prefix}encoder.layer.{number}.", x)
        return head(x)

    def logits(tokens: Tensor, segments: Tensor, real: Tensor) -> Tensor:
        rows = []
        for row, kept in enumerate(real):
            out = one(tokens[row][kept], segments[row][kept])
            if out.dim() == 2:  # one for each token: zeros for the padding
                padded = out.new_zeros(len(kept), out.size(1))
                padded[kept] = out
                out = padded
            rows.append(out)
        return torch.stack(rows)

    return logits


def tied_head(weight: Tensor) -> Head:
    """The transposed embedding, and nothing else."""
    return lambda x: x @ weight.double().t()


def first_position(weight: Tensor, bias: Tensor) -> Head:
    """Classes of the first position."""
    return lambda x: weight.double() @ x[0] + bias.double()


def gated_layer(model: State, config: Config, name: str, x: Tensor) -> Tensor:
    """A gated attention unit with its norm, (T, C) to (T, C) (GAU section 4.1)."""
    width, size = config["intermediate_size"], config["attention_key_size"]
    inner = x @ model[name + "gau.i_dense.weight"].t()
    inner = inner * inner.sigmoid()
    u, v, z = inner[:, :width], inner[:, width : 2 * width], inner[:, 2 * width :]
    q, k = (_rotate(z * model[f"{name}gau.{side}_scaleoffset.weight"]) for side in "qk")
    products = q @ k.t()
    if config.get("attention_scale", True):
        products = products / math.sqrt(size)
    weights = NORMALISERS[config.get("normalization", "softmax_plus")](products)
    out = (u * (weights @ v)) @ model[name + "gau.o_dense.weight"].t()
    return _norm(x + out, config["layer_norm_eps"])


def transformer_layer(model: State, config: Config, name: str, x: Tensor) -> Tensor:
    """A layer of RoFormerV2, (T, C) to (T, C), one head at a time."""
    eps, size = config["layer_norm_eps"], x.size(1) // config["num_attention_heads"]
    q, k, v = (
        x @ model[f"{name}attention.self.{part}.weight"].t() for part in ("query", "key", "value")
    )
    heads = []
    for start in range(0, x.size(1), size):
        part = slice(start, start + size)
        weights = (_rotate(q[:, part]) @ _rotate(k[:, part]).t() / math.sqrt(size)).softmax(-1)
        values = _rotate(v[:, part]) if config.get("rotary_value") else v[:, part]
        heads.append(weights @ values)
    attended = torch.cat(heads, dim=1) @ model[name + "attention.output.dense.weight"].t()
    x = _norm(x + attended, eps)
    activation = utils.get_activation_fn(config["hidden_act"])
    inner = activation(x @ model[name + "intermediate.dense.weight"].t())
    return _norm(x + inner @ model[name + "output.dense.weight"].t(), eps)


def _norm(x: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def _rotate(x: Tensor) -> Tensor:
    """Rotation channels 2i and 2i + 1 of position m by m · 10000^(-2i/D), (T, D) to (T, D)."""
    positions = torch.arange(len(x), dtype=x.dtype)
    rates = 10000.0 ** -(torch.arange(0, x.size(1), 2, dtype=x.dtype) / x.size(1))
    sine, cosine = (positions[:, None] * rates).sin(), (positions[:, None] * rates).cos()
    out = torch.empty_like(x)
    out[:, 0::2] = x[:, 0::2] * cosine - x[:, 1::2] * sine
    out[:, 1::2] = x[:, 0::2] * sine + x[:, 1::2] * cosine
    return out
