"""The T x T matrices of softmax attention and gated units, which fused kernels never store."""

from typing import Any, Dict, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.functional import additive_mask
from fairseq_posenc.attention.grouped import repeat_heads


def products_and_logits(
    attention: Any, x: Tensor, prepared: Dict[str, Any]
) -> Tuple[Tensor, Tensor]:
    """q·k, and q·k plus the logits of positions, without the factor that depends on the length.

    Args:
        attention: a kernel with a logit for every query and key.
        x: its input, (B, T, C).
        prepared: its prepared arguments.

    Returns:
        (B, H, T, T) each, float64.
    """
    heads = attention.extended(attention.project(x, prepared), x, None)
    q, scale, bias, _ = attention.logits(x, heads, {**prepared, "factor": None})
    if prepared["causal"]:  # then there is no bias
        bias = additive_mask(x.size(1), x.size(1), True, None, x)
    keys = repeat_heads(heads.k, q.size(1)).double()
    products = torch.matmul(q.double(), keys.transpose(-2, -1))
    logits = products * scale
    return products, logits if bias is None else logits + bias
