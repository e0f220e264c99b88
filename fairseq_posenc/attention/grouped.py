"""Grouped-query attention: several heads of queries share one head of keys and values.

Ainslie et al. 2023, arXiv 2305.13245, section 2.2, with G heads of keys and values for H heads of
queries: query head h uses key head ⌊h·G / H⌋.  G = 1 is multi-query attention (Shazeer 2019, arXiv
1911.02150).  A decoder's cache shrinks to G / H of its usual size.
"""

from dataclasses import dataclass
from typing import Any, Optional

from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting


@dataclass
class HeadFlags:
    """Flags of the heads of softmax attention, dense or sparse."""

    kv_heads: Optional[int] = setting(
        None,
        "number of heads of keys and values, each shared by the same number of query heads; "
        "attention to the source has the decoder's number (default: the number of attention heads)",
        at_least=1,
    )
    qk_norm: Optional[bool] = setting(
        False,
        "normalise the queries and the keys of each head, before positions are applied, with the "
        "norm that --norm selects",
    )


def _flag(options: Options, side: str) -> str:
    """The name of the setting for the number of key heads of *side*."""
    of_side = f"{side}_kv_heads"
    return of_side if option(options, of_side) else "kv_heads"


def kv_heads_of(options: Options, side: str, num_heads: int) -> int:
    """G, the number of key heads of *side*; refused unless it divides H = *num_heads*."""
    name = _flag(options, side)
    heads = int(option(options, name) or num_heads)
    if heads < 1 or num_heads % heads:
        divisors = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
        raise UsageError(
            f"{flag_of(name)} {heads}: must divide --{side}-attention-heads {num_heads}; "
            f"possible are {divisors}"
        )
    return heads


def check_groups(encoding: PositionEncoding, heads: int) -> None:
    """Refuse an *encoding* that changes keys differently per head, because heads share keys."""
    if encoding.transform is not None and encoding.transform.differs_by_head:
        raise UsageError(
            f"{flag_of(_flag(encoding.options, encoding.stack.side))} {heads}: --position-encoding "
            f"{encoding.name} changes the keys of each head differently, so heads cannot share "
            "keys; drop the flag, or give another encoding"
        )


def keep_heads(projection: Any, channels: int) -> None:
    """Reduce a linear layer to its first *channels* = G·D output channels, in place.

    The remaining rows keep their initial values, distributed as in the full layer.
    """
    for name, parameter in list(projection.named_parameters()):
        setattr(projection, name, nn.Parameter(parameter.detach()[:channels].clone()))
    projection.out_features = channels


def by_key_head(x: Tensor, kv_heads: int) -> Tensor:
    """Join the queries that share a key head: (B, H, T, D) -> (B, G, H/G·T, D)."""
    return x.reshape(x.size(0), kv_heads, -1, x.size(-1))


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat keys or values for every query head: (B, G, S, D) -> (B, H, S, D)."""
    groups = num_heads // x.size(1)
    if groups == 1:
        return x
    return x.unsqueeze(2).expand(-1, -1, groups, -1, -1).flatten(1, 2)
