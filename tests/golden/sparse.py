"""Longformer's and BigBird's self-attention, computed by transformers."""

from typing import Any, Dict

import numpy as np
import torch
from transformers import BigBirdConfig, LongformerConfig
from transformers.models.big_bird import modeling_big_bird
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from golden import Made, instantiate, normal, source

SOURCE = source("transformers")
B, S, C, H = 2, 24, 16, 2
#: for each of the query blocks 2 to 7, two random key blocks outside of its window
RANDOM = [[5, 3], [6, 4], [5, 1], [1, 6], [2, 3], [3, 4]]


def _projections(*names: str) -> Dict[str, Any]:
    found = {}
    for name in names:
        found[f"{name}.weight"] = normal(C, C, std=0.4)
        found[f"{name}.bias"] = normal(C, std=0.4)
    return found


def longformer(name: str) -> Made:
    """Outputs (B, S, C) before the output projection; the first token is global."""
    names = ("query", "key", "value", "query_global", "key_global", "value_global")
    described = {
        "source": SOURCE,
        "config": {"heads": H, "local_window": 8, "local_global_tokens": 1},
        "parameters": _projections(*names),
        "inputs": {"x": normal(B, S, C)},
        "integers": {"lengths": [24, 19]},
    }
    reference = instantiate(name, described)
    config = LongformerConfig(
        hidden_size=C, num_attention_heads=H, attention_window=[8], num_hidden_layers=1
    )
    layer = LongformerSelfAttention(config, 0).eval()
    layer.load_state_dict(reference["state_dict"])
    padding = torch.arange(S) >= reference["inputs"]["lengths"].unsqueeze(1)
    mask = torch.zeros(B, S).masked_fill_(padding, -10000.0)
    mask[:, 0] = 10000.0
    masks = {"is_index_masked": mask < 0, "is_index_global_attn": mask > 0, "is_global_attn": True}
    out = layer(reference["inputs"]["x"], attention_mask=mask, **masks)[0]
    return described, {"out": out.masked_fill(padding.unsqueeze(-1), 0.0)}


def bigbird(name: str) -> Made:
    """Outputs (1, 28, C) of 7 blocks of 4 tokens, before the output projection.

    In transformers the last block is global, too, so we add an eighth block of padding.
    """
    size, blocks = 4, len(RANDOM) + 1
    described = {
        "source": SOURCE,
        "config": {
            "heads": H,
            "bigbird_block_size": size,
            "bigbird_global_blocks": 1,
            "bigbird_window_blocks": 3,
            "bigbird_random_blocks": 2,
        },
        "parameters": _projections("query", "key", "value"),
        "inputs": {"x": normal(1, blocks * size, C)},
        "integers": {"random": RANDOM},
    }
    reference = instantiate(name, described)
    config = BigBirdConfig(
        hidden_size=C, num_attention_heads=H, block_size=size, num_random_blocks=2
    )
    layer = modeling_big_bird.BigBirdBlockSparseAttention(config).eval()
    layer.load_state_dict(reference["state_dict"])
    layer._bigbird_block_rand_mask_with_head = lambda **sizes: [np.array(RANDOM)] * H
    x = torch.cat((reference["inputs"]["x"], torch.zeros(1, size, C)), dim=1)
    mask = (torch.arange(x.size(1)) < blocks * size).float().unsqueeze(0)
    make = modeling_big_bird.BigBirdModel.create_masks_for_block_sparse_attn
    blocked, band, from_mask, to_mask = make(mask, size)
    masks = {"from_blocked_mask": blocked, "to_blocked_mask": blocked}
    out = layer(x, band_mask=band, from_mask=from_mask, to_mask=to_mask, **masks)[0]
    return described, {"out": out[:, : blocks * size]}


MAKERS = {"longformer": longformer, "bigbird": bigbird}
