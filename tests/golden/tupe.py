"""TUPE in NumPy and float64, with loops over tokens and heads, as no package on PyPI has it.

Ke, He, Liu, arXiv 2006.15595, Eq. 7, 9 and 10.  Where the paper says nothing, this module follows
the authors' code.  Position vectors pass a layer norm and projections with biases.  If the query is
[CLS], the logit is the product of row 0 with itself (θ1); if only the key is [CLS], that of row 1
(θ2); otherwise token t has row t + 1.  In TUPE-R, these cases have bucket 16, bucket 32 (which T5
does not use) and T5's bucket.  The package shares no code with this module, nor its order of sums.
"""

import math
from functools import partial
from typing import Any, Dict, List

import numpy as np
import torch
from torch import Tensor

from golden import Made, instantiate, normal

C, H, F, LAYERS, POSITIONS = 32, 4, 64, 2, 64
D = C // H
CLS, PAD, EOS, MASK = 0, 1, 2, 26
SYMBOLS = [
    *("<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>"),
    *(f"w{number}" for number in range(MASK - 7)),
    "<mask>",
]
FULL = [
    [CLS, 19, MASK, 10, 16, 18, 23, 7, 14, 7, 24, EOS],
    [CLS, 13, 16, 16, MASK, 12, 9, 8, 22, 25, 11, EOS],
    [CLS, 17, 8, MASK, 21, 18, 16, 12, 12, 20, 9, EOS],
]
LENGTHS = [12, 8, 6]
PADDED = [[*row[: length - 1], EOS, *[PAD] * (12 - length)] for row, length in zip(FULL, LENGTHS)]
STACK = "decoder.sentence_encoder."
Parameters = Dict[str, np.ndarray]


def parameters(relative: bool) -> Dict[str, List[Any]]:
    """All parameters of a released model, under the names that it gives them."""

    def linear(name: str, into: int, out: int, dot: str = ".") -> Dict[str, List[Any]]:
        weight = normal(out, into, std=round(1.2 * into**-0.5, 3))
        return {f"{name}{dot}weight": weight, f"{name}{dot}bias": normal(out, std=0.2)}

    def norm(name: str) -> Dict[str, List[Any]]:
        return {f"{name}.weight": normal(C, mean=1.0, std=0.2), f"{name}.bias": normal(C, std=0.2)}

    found = {
        STACK + "embed_tokens.weight": normal(len(SYMBOLS), C, std=0.5),
        STACK + "pos.weight": normal(POSITIONS + 1, C, std=0.5),
        **linear(STACK + "pos_q_linear", C, C),
        **linear(STACK + "pos_k_linear", C, C),
        **norm(STACK + "pos_ln"),
        **norm(STACK + "emb_layer_norm"),
        **linear("decoder.lm_head.dense", C, C),
        **norm("decoder.lm_head.layer_norm"),
        "decoder.lm_head.bias": normal(len(SYMBOLS), std=0.2),
    }
    for layer in range(LAYERS):
        name = f"{STACK}layers.{layer}."
        found.update(linear(name + "self_attn.in_proj", C, 3 * C, dot="_"))
        found.update(linear(name + "self_attn.out_proj", C, C))
        found.update(norm(name + "self_attn_layer_norm"))
        found.update(linear(name + "fc1", C, F))
        found.update(linear(name + "fc2", F, C))
        found.update(norm(name + "final_layer_norm"))
    if relative:
        found[STACK + "relative_attention_bias.weight"] = normal(33, H, std=0.5)
    return found


def affine(p: Parameters, name: str, x: np.ndarray) -> np.ndarray:
    return p[name + ".weight"].dot(x) + p[name + ".bias"]


def norm(p: Parameters, name: str, x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / math.sqrt(x.var() + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])


def bucket(distance: int) -> int:
    """T5's bucket (of 32) for key minus query: one per distance, then ranges that grow by √2."""
    starts = [*(n**2 for n in range(8)), *(2 ** (6 + n) for n in range(8))]  # squared distances
    return sum(distance**2 >= start for start in starts) - 1 + 16 * (distance > 0)


def position_logit(p: Parameters, head: int, i: int, j: int) -> float:
    """The position term of a logit, for a query at position i and a key at position j."""
    rows = (0, 0) if i == 0 else (1, 1) if j == 0 else (i + 1, j + 1)
    q, k = (
        affine(p, f"{STACK}pos_{side}_linear", norm(p, STACK + "pos_ln", vector))
        for side, vector in zip("qk", p[STACK + "pos.weight"][list(rows)])
    )
    value = sum(q[c] * k[c] for c in range(head * D, (head + 1) * D)) / math.sqrt(2 * D)
    table = p.get(STACK + "relative_attention_bias.weight")
    if table is not None:
        value += table[16 if i == 0 else 32 if j == 0 else bucket(j - i), head]
    return value


def attend(p: Parameters, name: str, rows: List[Any], keys: List[int], bias: Any) -> List[Any]:
    """Multi-head attention of every row to the rows with the numbers *keys*."""
    qkv = [p[name + "in_proj_weight"].dot(x) + p[name + "in_proj_bias"] for x in rows]
    outputs = []
    for i, own in enumerate(qkv):
        mixed = np.zeros(C)
        for head in range(H):
            q, k, v = (slice(part * C + head * D, part * C + (head + 1) * D) for part in range(3))
            weights = {
                j: math.exp(own[q].dot(qkv[j][k]) / math.sqrt(2 * D) + bias[head, i, j])
                for j in keys
            }
            for j, weight in weights.items():
                mixed[q] += weight / sum(weights.values()) * qkv[j][v]
        outputs.append(affine(p, name + "out_proj", mixed))
    return outputs


def logits(p: Parameters, tokens: List[int], bias: np.ndarray) -> np.ndarray:
    """Logits (T, V) of one row of tokens."""
    keys = [t for t, token in enumerate(tokens) if token != PAD]
    embedding = p[STACK + "embed_tokens.weight"]
    rows = [
        norm(p, STACK + "emb_layer_norm", embedding[token]) * (token != PAD) for token in tokens
    ]
    for layer in range(LAYERS):
        name = f"{STACK}layers.{layer}."
        added = attend(p, name + "self_attn.", rows, keys, bias)
        rows = [norm(p, name + "self_attn_layer_norm", x + y) for x, y in zip(rows, added)]
        inner = [gelu(affine(p, name + "fc1", x)) for x in rows]
        rows = [
            norm(p, name + "final_layer_norm", x + affine(p, name + "fc2", y))
            for x, y in zip(rows, inner)
        ]
    heads = (gelu(affine(p, "decoder.lm_head.dense", x)) for x in rows)
    heads = (norm(p, "decoder.lm_head.layer_norm", x) for x in heads)
    return np.stack([embedding.dot(x) + p["decoder.lm_head.bias"] for x in heads])


def run(state: Dict[str, Tensor], batches: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """The bias (H, T, T) and the logits of every batch (B, T, V)."""
    p = {name: value.double().numpy() for name, value in state.items()}
    length = next(iter(batches.values())).size(1)
    pairs = [(h, i, j) for h in range(H) for i in range(length) for j in range(length)]
    bias = np.array([position_logit(p, *pair) for pair in pairs]).reshape(H, length, length)
    outputs = {"bias": torch.from_numpy(bias).float()}
    for name, tokens in batches.items():
        found = np.stack([logits(p, row, bias) for row in tokens.tolist()])
        outputs[name.replace("tokens", "logits")] = torch.from_numpy(found).float()
    return outputs


def tupe(relative: bool, name: str) -> Made:
    described = {
        "source": "golden.tupe: the formulas, in NumPy",
        "config": {
            **{"encoder_layers": LAYERS, "encoder_embed_dim": C, "encoder_ffn_embed_dim": F},
            **{"encoder_attention_heads": H, "max_positions": POSITIONS, "rel_pos": relative},
            **{"activation_fn": "gelu", "encoder_normalize_before": False},
            **{"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0},
        },
        "meta": {"symbols": SYMBOLS},
        "parameters": parameters(relative),
        "tied": {"decoder.lm_head.weight": STACK + "embed_tokens.weight"},
        "integers": {"tokens_full": FULL, "tokens_padded": PADDED},
    }
    reference = instantiate(name, described)
    outputs = run(reference["state_dict"], reference["inputs"])
    if relative:  # the same parameters, stored in half precision
        halved = {key: value.half() for key, value in reference["state_dict"].items()}
        full = {"tokens_full": reference["inputs"]["tokens_full"]}
        outputs["logits_full_fp16ckpt"] = run(halved, full)["logits_full"]
    return described, outputs


MAKERS = {"tupe_a_mlm": partial(tupe, False), "tupe_r_mlm": partial(tupe, True)}
