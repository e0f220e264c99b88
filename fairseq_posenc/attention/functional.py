"""Scaled dot-product attention with additive terms, fused where PyTorch can, explicit where not.

Attention(q, k, v) = softmax(scale · q kᵀ + bias) v   (Vaswani et al. 2017, Eq. 1, with the bias of
relative encodings; RoFormer Eq. 2).  A query whose keys are all masked attends to nothing: zeros.
"""

from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc import compat


def additive_mask(
    query_length: int,
    key_length: int,
    causal: bool,
    key_padding_mask: Optional[Tensor],
    like: Tensor,
) -> Optional[Tensor]:
    """Mask to add to the logits: 0 where a query may look, -inf where it may not.

    Queries are the last T of S positions, so one decoding step needs no special case.

    Args:
        query_length: T.
        key_length: S.
        causal: hide keys after each query's own position.
        key_padding_mask: (B, S), True at padding, or None.
        like: tensor whose dtype and device the result takes.

    Returns:
        (1|B, 1, 1|T, S), or None if nothing is hidden.
    """
    hidden = None
    if causal and query_length > 1:
        offset = key_length - query_length
        ones = torch.ones(query_length, key_length, dtype=torch.bool, device=like.device)
        hidden = ones.triu(offset + 1).view(1, 1, query_length, key_length)
    if key_padding_mask is not None:
        padding = key_padding_mask.bool().view(-1, 1, 1, key_length)
        hidden = padding if hidden is None else hidden | padding
    if hidden is None:
        return None
    return torch.zeros_like(hidden, dtype=like.dtype).masked_fill_(hidden, float("-inf"))


def combined_masks(
    query_length: int,
    key_length: int,
    causal: bool,
    padding_mask: Optional[Tensor],
    more: bool,
    like: Tensor,
) -> Tuple[Optional[Tensor], bool]:
    """Masks of :func:`attend`: one bias for causality and padding, or none and the kernel's own.

    The kernel's own causal mask takes no bias beside it, and wants T = S.

    Args:
        query_length: T.
        key_length: S.
        causal: hide later keys.
        padding_mask: (B, S), True at padding, or None.
        more: whether other logits will be added to the bias.
        like: tensor whose dtype and device the bias takes.

    Returns:
        bias (1|B, 1, 1|T, S) or None, and whether causality is left to the attention.
    """
    if causal and padding_mask is None and not more and query_length == key_length:
        return None, True
    return additive_mask(query_length, key_length, causal, padding_mask, like), False


def separate_masks(
    query_length: int,
    key_length: int,
    causal: bool,
    padding_mask: Optional[Tensor],
    more: bool,
    like: Tensor,
) -> Tuple[Optional[Tensor], bool]:
    """Masks of an attention without logits: padding (B, 1, 1, S) or None, and causality.

    Arguments as for :func:`combined_masks`; nothing here grows with T·S.
    """
    return additive_mask(1, key_length, False, padding_mask, like), causal


def add_terms(*terms: Optional[Tensor]) -> Optional[Tensor]:
    """Sum of the additive terms that are there, or None if none is."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attention output through the fused kernel; the weights never exist in memory.

    Args:
        q: queries (B, H, T, D).
        k: keys (B, H, S, D).
        v: values (B, H, S, D).
        scale: factor on q·k.
        bias: additive term (1|B, 1|H, 1|T, S), -inf at hidden keys.
        causal: hide later keys; needs T = S and no *bias*.
        dropout: probability of dropping an attention weight.

    Returns:
        (B, H, T, D); zeros for a query that may look nowhere.
    """
    if not (compat.HAS_SDPA and _has_kernel(q, bias, dropout)):
        return attend_with_weights(q, k, v, scale, bias, causal, dropout)[0]
    nowhere = None
    if bias is not None:
        bias = bias.to(q.dtype)  # under autocast, projections are narrower than what went in
        if not compat.SDPA_SAFE_MASKS:
            nowhere = _blind_rows(bias)  # their softmax is NaN, and so are its gradients
            bias = bias.masked_fill(nowhere, 0.0)
    if compat.SDPA_HAS_SCALE:
        out = F.scaled_dot_product_attention(q, k, v, bias, dropout, causal, scale=scale)
    else:
        q = q * (scale * q.size(-1) ** 0.5)
        out = F.scaled_dot_product_attention(q, k, v, bias, dropout, causal)
    return out if nowhere is None else out.masked_fill(nowhere, 0.0)


def _has_kernel(q: Tensor, bias: Optional[Tensor], dropout: float) -> bool:
    """Whether PyTorch has a fused kernel for this case.

    On a CPU it has none with dropout, or with gradients for the bias.  There it computes what
    :func:`attend_with_weights` does, in more steps (1.15 times as long at 512 tokens).
    """
    return q.is_cuda or not (dropout > 0 or (bias is not None and bias.requires_grad))


def _blind_rows(bias: Tensor) -> Tensor:
    """Queries that may look nowhere, (1|B, 1|H, 1|T, 1)."""
    return bias.detach().amax(dim=-1, keepdim=True) == float("-inf")


def attend_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    bias: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    more_values: Optional[Callable[[Tensor], Tensor]] = None,
) -> Tuple[Tensor, Tensor]:
    """Attention output and weights, with the softmax in float32.

    Args: as for :func:`attend`; hidden keys are those where *bias* is -inf.  *more_values* says
        what weights (B, H, T, S), after dropout, give beside those of *v*: (B, H, T, D).

    Returns:
        output (B, H, T, D) and weights before dropout (B, H, T, S), both in the dtype of *q*.
    """
    if causal:
        bias = add_terms(bias, additive_mask(q.size(2), k.size(2), True, None, q))
    logits = torch.matmul(q * scale, k.transpose(-2, -1))  # (B, H, T, S)
    logits = logits.to(torch.promote_types(q.dtype, torch.float32))
    if bias is not None:
        logits += bias
    weights = torch.softmax(logits, dim=-1)
    if bias is not None and weights[..., :1].isnan().any():  # seldom, and cheaper than to ask bias
        nowhere = _blind_rows(bias)
        weights = torch.softmax(logits.masked_fill(nowhere, 0.0), dim=-1).masked_fill(nowhere, 0.0)
    weights = weights.type_as(q)
    dropped = F.dropout(weights, dropout) if dropout > 0 else weights
    out = torch.matmul(dropped, v)
    return (out if more_values is None else out + more_values(dropped)), weights
