"""The fused attention kernel of a CPU, with its gradient as a function of its own.

For autograd, ``scaled_dot_product_attention`` keeps the keys and values that it was given.  Where
these are copies of parts of other tensors, whoever calls the functions here can make the copies
again in the backward pass, and does not have to compute the attention again.
"""

from typing import Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import SDPA_SAFE_MASKS

_ATTEND = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_GRADIENTS = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def serves(q: Tensor, bias: Tensor, dropout: float) -> bool:
    """True if the kernel computes what ``attend`` would, and all gradients that are wanted."""
    known = SDPA_SAFE_MASKS and _ATTEND is not None and _GRADIENTS is not None
    return known and not q.is_cuda and dropout == 0 and not bias.requires_grad


def attend_with_sums(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor
) -> Tuple[Tensor, Tensor]:
    """The output (B, H, T, D), and the logarithms of the sums of softmax, (B, H, T).

    Args:
        q: queries (B, H, T, D).
        k: keys (B, H, S, D).
        v: values (B, H, S, D).
        scale: factor on q·k.
        bias: (B, 1|H, T, S), -inf at hidden keys, without a gradient.
    """
    assert _ATTEND is not None
    return _ATTEND(q, k, v, 0.0, False, attn_mask=bias.to(q.dtype), scale=scale)


def gradients_with_sums(
    gradient: Tensor,
    inputs: Sequence[Tensor],
    scale: float,
    bias: Tensor,
    outputs: Tuple[Tensor, Tensor],
) -> Tuple[Tensor, ...]:
    """Gradients of the queries, keys and values of :func:`attend_with_sums`.

    Args:
        gradient: that of the output, (B, H, T, D).
        inputs: q, k and v.
        scale: factor on q·k.
        bias: as there.
        outputs: what the function returned.
    """
    assert _GRADIENTS is not None
    bias = bias.to(gradient.dtype)
    return _GRADIENTS(gradient, *inputs, *outputs, 0.0, False, attn_mask=bias, scale=scale)
