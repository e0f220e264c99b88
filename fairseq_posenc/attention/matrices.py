"""The matrices of softmax attention and of gated units, which their fused kernels never store."""

from typing import Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.base import Positions
from fairseq_posenc.attention.cache import content_logits
from fairseq_posenc.attention.functional import add_terms, additive_mask
from fairseq_posenc.attention.grouped import repeat_heads
from fairseq_posenc.encodings.base import Content
from fairseq_posenc.flags.options import Layer


def products_and_logits(attention: Layer, x: Tensor, given: Positions) -> Tuple[Tensor, Tensor]:
    """q·k, and the logits from which a forward without a cache computes the weights.

    Args:
        attention: a kernel that computes one weight for every pair of tokens.
        x: its input, (B, T, C).
        given: its positions and masks.

    Returns:
        (B, H, T, T) each, float64.
    """
    q, k, _, content_q, content_k = attention.project(x, given.get("table"))[:5]
    scale, added = attention.encoding.scale, given["bias"]
    if given["causal"]:
        added = add_terms(added, additive_mask(x.size(1), x.size(1), True, None, x))
    if attention.position_terms is not None:
        content = Content(
            x,
            content_q,
            repeat_heads(content_k, q.size(1)),
            scale,
            given["query_positions"],
            given["key_positions"],
            of_keys=attention.position_terms.of_keys(x),
            uneven=bool(given.get("uneven")),
        )
        terms = content_logits(attention, content, given.get("distance_vectors"), None)
        added = add_terms(added, terms)
    keys = repeat_heads(k, q.size(1)).double()
    products = torch.matmul(q.double(), keys.transpose(-2, -1))
    logits = products * scale
    return products, logits if added is None else logits + added
