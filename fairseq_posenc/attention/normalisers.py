"""Normalisers that map query-key products to attention weights, and the flags of gated units.

GAU, "Implementation and Experiments for GAU-based Model", Liu, sections 2.3 and 3: squared ReLU
with several divisors, and the number n of keys that a query may see, which softmax_plus and some
of the divisors depend on.
"""

import math
from dataclasses import dataclass
from typing import Callable, Dict, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.functional import no_autocast
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.flags.settings import Needs, setting

#: Numbers of keys that queries see, or factors computed from them: (1|B, 1, 1|T, 1), float32, or
#: one number for all queries.
Counts = Union[float, Tensor]
# square roots of the divisors of GAU Table 1, applied before squaring; n keys, key size s
DIVISORS: Dict[str, Callable[[Counts, int], Counts]] = {
    "n*n": lambda n, s: n,
    "n": lambda n, s: n**0.5,
    "n*s": lambda n, s: (n * s) ** 0.5,
    "s*s": lambda n, s: float(s),
    # as printed in GAU Table 2, ReLU²(q·k / √s) / (n s)
    "n*s*s": lambda n, s: n**0.5 * s,
}


def log_ratio(counts: Counts, reference: float) -> Counts:
    """log n / log N of softmax_plus (GAU section 3.3), n the *counts* and N the *reference*."""
    log = counts.log() if torch.is_tensor(counts) else math.log(counts)
    return log / math.log(reference)


def count_visible(
    query_length: int,
    key_length: int,
    causal: bool,
    padding_mask: Optional[Tensor],
    device: torch.device,
    number: bool = False,
) -> Counts:
    """Number of keys visible to each query, at least 1.

    >>> count_visible(2, 3, True, None, torch.device("cpu")).flatten()
    tensor([2., 3.])
    >>> count_visible(1, 3, True, None, torch.device("cpu"), number=True)
    3.0

    Args:
        query_length: T; queries are the last T of *key_length* S positions.
        causal: later keys are hidden.
        padding_mask: (B, S), True at hidden padding, or None.
        number: if all queries see equally many keys, return a number of the host.
    """
    if padding_mask is None:
        first = key_length - query_length + 1 if causal else key_length
        if number and first == key_length:
            return float(key_length)
        return torch.arange(first, key_length + 1, device=device).float().view(1, 1, -1, 1)
    real = ~padding_mask
    seen = real.long().cumsum(dim=1)[:, -query_length:] if causal else real.sum(dim=1, keepdim=True)
    return seen.clamp(min=1).float()[:, None, :, None]


def squared_relu(
    q: Tensor, k: Tensor, bias: Optional[Tensor], scale: Counts, scaled: bool
) -> Tensor:
    """ReLU²(scale · q kᵀ + bias) in float32, normalised if *scaled* (GAU section 2.3, Table 2).

    The scale is applied before the square, so nothing overflows in half precision.

    Args:
        q: queries (B, 1, T, s).
        k: keys (B, 1, S, s).
        bias: additive term (1|B, 1, 1|T, S), -inf at hidden keys, or None.
        scale: square root of 1/divisor, (1|B, 1, 1|T, 1), or one number for all queries.
        scaled: divide every row by its sum.

    Returns:
        weights (B, 1, T, S), float32; zero at hidden keys.
    """
    wide = AT_LEAST_FLOAT32[q.dtype]
    with no_autocast(q.device):  # half precision would round small squares to zero
        logits = torch.matmul(q.to(wide) * scale, k.to(wide).transpose(-2, -1))
        if bias is not None:
            logits = logits + bias
        weights = F.relu(logits).square()
        if scaled:
            total = weights.sum(dim=-1, keepdim=True)
            weights = weights / total.clamp(min=torch.finfo(torch.float32).tiny)
        return weights


SOFTMAX, RELU = ("softmax_plus", "softmax"), ("squared_relu", "scaled_squared_relu")
_GATED: Needs = {"layer": ("gated",)}


@dataclass
class GatedFlags:
    """Flags of the gated attention unit."""

    gau_key_size: Optional[int] = setting(
        128,
        "s, the size of queries and keys",
        role="model",
        at_least=1,
        at_most=2**16,
        needs=_GATED,
    )
    gau_expansion: Optional[int] = setting(
        2, "e as a multiple of the channels", role="model", at_least=1, at_most=64, needs=_GATED
    )
    gau_offsets: Optional[bool] = setting(
        False,
        "add learned offsets to queries and keys, beside their factors (GAU section 4.1)",
        role="model",
        needs=_GATED,
    )
    gau_normaliser: Optional[str] = setting(
        "softmax_plus",
        "softmax_plus: softmax of logits times log(n)/log(reference length), where n is the number "
        "of keys that a query may see; softmax; squared_relu: ReLU² over --gau-divisor; "
        "scaled_squared_relu: ReLU² over its sum",
        role="model",
        choices=(*SOFTMAX, *RELU),
        needs=_GATED,
    )
    gau_divisor: Optional[str] = setting(
        "n*s",
        "divisor of squared_relu: {choices} (GAU Table 1); with scaled_squared_relu a divisor of "
        "the products, to which positional logits are added",
        role="model",
        choices=DIVISORS,
        needs={"gau_normaliser": RELU},
    )
    gau_length: Optional[str] = setting(
        "visible",
        "n in --gau-divisor and between chunks: visible, the number of keys that a query may see; "
        "reference, --gau-reference-length for all queries",
        role="model",
        choices=("visible", "reference"),
        needs={"gau_divisor": [name for name in DIVISORS if "n" in name]},
    )
    gau_reference_length: Optional[int] = setting(
        512,
        "reference length, usually that of training, in tokens",
        role="model",
        at_least=2,
        at_most=2**31 - 1,
        needs={"gau_normaliser": ("softmax_plus",), "gau_length": ("reference",)},
    )
