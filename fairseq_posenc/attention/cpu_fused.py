"""The fused attention kernel of a CPU, and its gradient as a separate function.

Autograd saves the keys and values of ``scaled_dot_product_attention``.  With these functions, a
caller whose keys are copies can copy them again in the backward pass without computing the
attention twice.
"""

from typing import Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import SDPA_SAFE_MASKS

_ATTEND = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_GRADIENTS = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def serves(q: Tensor, bias: Tensor, dropout: float) -> bool:
    """True if the kernel computes this attention and its gradients.

    Args:
        q: queries, of any shape; the kernel is for a CPU.
        bias: additive term of any shape, whose gradient the kernel does not compute.
        dropout: probability of dropping an attention weight, which the kernel cannot do.
    """
    known = SDPA_SAFE_MASKS and _ATTEND is not None and _GRADIENTS is not None
    return known and not q.is_cuda and dropout == 0 and not bias.requires_grad


def attend_with_log_sums(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor
) -> Tuple[Tensor, Tensor]:
    """The output (B, H, T, D) of attention, and the logarithms (B, H, T) of softmax's sums.

    Args:
        q: queries (B, H, T, D).
        k: keys (B, H, S, D).
        v: values (B, H, S, D).
        scale: factor on q·k.
        bias: (B, 1|H, T, S), -inf at hidden keys, without a gradient.
    """
    assert _ATTEND is not None
    return _ATTEND(q, k, v, 0.0, False, attn_mask=bias.to(q.dtype), scale=scale)


def gradients_of_attention(
    gradient: Tensor,
    inputs: Sequence[Tensor],
    scale: float,
    bias: Tensor,
    outputs: Tuple[Tensor, Tensor],
) -> Tuple[Tensor, ...]:
    """Gradients of the queries, keys and values of :func:`attend_with_log_sums`.

    Args:
        gradient: the gradient of the output, (B, H, T, D).
        inputs: queries, keys and values.
        scale: factor on q·k.
        bias: (B, 1|H, T, S), -inf at hidden keys.
        outputs: the output (B, H, T, D) and the logarithms (B, H, T).

    Returns:
        three tensors with the shapes of the inputs.
    """
    assert _GRADIENTS is not None
    bias = bias.to(gradient.dtype)
    return _GRADIENTS(gradient, *inputs, *outputs, 0.0, False, attn_mask=bias, scale=scale)
