"""xPos and CoPE, computed by x-transformers."""

import torch
from x_transformers.x_transformers import CoPE, RotaryEmbedding, apply_rotary_pos_emb

from golden import Made, instantiate, normal, source

SOURCE = source("x-transformers")
H, T, D, MOST = 2, 40, 8, 5


def xpos(name: str) -> Made:
    """Products of queries and keys, (1, H, T, T); zero for keys later than the query."""
    described = {
        "source": SOURCE,
        "config": {"heads": H, "head_dim": D, "xpos_scale_base": 16},
        "inputs": {"q": normal(1, H, T, D), "k": normal(1, H, T, D)},
    }
    q, k = instantiate(name, described)["inputs"].values()
    frequencies, scale = RotaryEmbedding(D, use_xpos=True, scale_base=16)(torch.arange(T))
    q, k = (
        apply_rotary_pos_emb(q, frequencies, scale),
        apply_rotary_pos_emb(k, frequencies, 1 / scale),
    )
    return described, {"products": (q @ k.transpose(-2, -1)).tril()}


def cope(name: str) -> Made:
    """Logits (1, H, T, T), zero for later keys; x-transformers does not divide q · e by √D."""
    described = {
        "source": SOURCE,
        "config": {"heads": H, "head_dim": D, "cope_max_position": MOST},
        "parameters": {"e": normal(MOST + 1, D)},
        "inputs": {"q": normal(1, H, T, D), "k": normal(1, H, T, D)},
    }
    reference = instantiate(name, described)
    q, k = reference["inputs"].values()
    layer = CoPE(D, H, MOST + 1)
    layer.pos_emb.copy_(reference["state_dict"]["e"])
    logits = q @ k.transpose(-2, -1) / D**0.5
    hidden = torch.ones(T, T).triu(1).bool()
    found = layer(q, logits.masked_fill(hidden, float("-inf")))
    return described, {"logits": found.tril()}


MAKERS = {"xpos": xpos, "cope": cope}
