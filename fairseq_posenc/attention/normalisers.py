"""Normalisers that map query-key products to attention weights, other than softmax.

GAU, "Implementation and Experiments for GAU-based Model", Liu, sections 2.3 and 3: squared ReLU
with several divisors, and the number n of keys that a query may see, which softmax_plus and some
of the divisors depend on.
"""

from typing import Callable, Dict, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.linear.precision import no_autocast

# square roots of the divisors of GAU Table 1, applied before squaring; n keys, key size s
DIVISORS: Dict[str, Callable[[Tensor, int], Tensor]] = {
    "n*n": lambda n, s: n,
    "n": lambda n, s: n.sqrt(),
    "n*s": lambda n, s: (n * s).sqrt(),
    "s*s": lambda n, s: torch.full_like(n, float(s)),
    # the formula that GAU Table 2 prints, ReLU²(q·k / √s) / (n s)
    "n*s*s": lambda n, s: n.sqrt() * s,
}


def visible_keys(
    query_length: int,
    key_length: int,
    causal: bool,
    padding_mask: Optional[Tensor],
    device: torch.device,
) -> Tensor:
    """Number of keys visible to each query, float32, (1|B, 1, 1|T, 1), at least 1.

    >>> visible_keys(2, 3, True, None, torch.device("cpu")).flatten()
    tensor([2., 3.])

    Args:
        query_length: T; queries are the last T of S positions.
        key_length: S.
        causal: later keys are hidden.
        padding_mask: (B, S), True at hidden padding, or None.
        device: device of the result.
    """
    if padding_mask is None:
        first = key_length - query_length + 1 if causal else key_length
        return torch.arange(first, key_length + 1, device=device).float().view(1, 1, -1, 1)
    real = ~padding_mask
    seen = real.long().cumsum(dim=1)[:, -query_length:] if causal else real.sum(dim=1, keepdim=True)
    return seen.clamp(min=1).float()[:, None, :, None]


def squared_relu(
    q: Tensor, k: Tensor, bias: Optional[Tensor], scale: Tensor, scaled: bool
) -> Tensor:
    """ReLU²(scale · q kᵀ + bias) in float32, normalised if *scaled* (GAU section 2.3, Table 2).

    The scale is applied before the square, so nothing overflows in half precision.

    Args:
        q: queries (B, 1, T, s).
        k: keys (B, 1, S, s).
        bias: additive term (1|B, 1, 1|T, S), -inf at hidden keys, or None.
        scale: square root of 1/divisor, (1|B, 1, 1|T, 1).
        scaled: divide every row by its sum.

    Returns:
        weights (B, 1, T, S), float32; zero at hidden keys.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    with no_autocast(q.device):  # which would cast the products, and small squares to zero
        logits = torch.matmul(q.to(wide) * scale, k.to(wide).transpose(-2, -1))
        if bias is not None:
            logits = logits + bias
        weights = F.relu(logits).square()
        if scaled:
            total = weights.sum(dim=-1, keepdim=True)
            weights = weights / total.clamp(min=torch.finfo(torch.float32).tiny)
        return weights
