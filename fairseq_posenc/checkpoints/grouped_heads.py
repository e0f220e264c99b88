"""Loading a checkpoint that was trained with another number of key heads.

Ainslie et al. 2023, arXiv 2305.13245, section 2.1: the key projection of a group is the mean of
its heads' key projections, the value projection likewise, and training goes on for a short while.
In the other direction each head is repeated for its group, which computes the same.
"""

import logging
import re
from typing import Any, Dict

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.warm_start import in_any_layer

logger = logging.getLogger(__name__)

_PROJECTIONS = re.compile(r"(.+)\.(?:k_proj|v_proj)\.(?:weight|bias)$")


def regroup(x: Tensor, head_dim: int, kv_heads: int) -> Tensor:
    """A weight or bias of keys or values with another number of heads.

    >>> import torch
    >>> regroup(torch.tensor([1.0, 3.0, 5.0, 7.0]), head_dim=1, kv_heads=2)
    tensor([2., 6.])
    >>> regroup(torch.tensor([2.0, 6.0]), head_dim=1, kv_heads=4)
    tensor([2., 2., 6., 6.])

    Args:
        x: (N·D, C) or (N·D), for N heads.
        head_dim: D.
        kv_heads: G, a divisor or a multiple of N.

    Returns:
        (G·D, C) or (G·D).
    """
    heads = x.view(-1, head_dim, *x.shape[1:])
    if len(heads) >= kv_heads:
        heads = heads.view(kv_heads, -1, *heads.shape[1:]).mean(dim=1)
    else:
        heads = heads.repeat_interleave(kv_heads // len(heads), dim=0)
    return heads.flatten(0, 1)


def adapt_heads(stack: Any, state_dict: Dict[str, Tensor], name: str) -> None:
    """Adapt the heads of keys and values in *state_dict* to *stack*, in place, and log the change.

    Args:
        stack: an encoder or decoder with position encodings.
        name: name of *stack* in the state, for example ``decoder``.

    Raises:
        UsageError: the numbers of heads do not divide each other, or *stack* has to be as trained.
    """
    grouped = {
        in_any_layer(f"{name}.{path}"): module
        for path, module in stack.named_modules()
        if hasattr(module, "kv_heads")
    }
    changed: Dict[int, int] = {}
    for key, x in state_dict.items():
        match = _PROJECTIONS.match(key)
        module = grouped.get(in_any_layer(match[1])) if match else None
        if match is None or module is None:
            continue
        head_dim, kv_heads = module.head_dim, module.kv_heads
        heads, rest = divmod(len(x), head_dim)
        if heads == kv_heads or rest or (heads % kv_heads and kv_heads % heads):
            continue
        if not _same_widths(module, state_dict, match[1]):
            continue  # another model altogether, which loading refuses
        if stack.strict_positions:
            raise UsageError(
                f"--kv-heads {kv_heads}: the checkpoint has {heads} heads of keys in {key}; "
                f"{stack.strict_advice}"
            )
        state_dict[key] = regroup(x, head_dim, kv_heads)
        changed[heads] = kv_heads
    for heads, kv_heads in changed.items():
        how = "means of groups" if heads > kv_heads else "each repeated"
        logger.warning(
            "warm start: %s has %d heads of keys and values for the %d of the checkpoint (%s)",
            *(name, kv_heads, heads, how),
        )


def _same_widths(module: Any, state_dict: Dict[str, Tensor], name: str) -> bool:
    """True if the attention *name* has the inputs and the queries of *module*."""
    q, k = (state_dict.get(f"{name}.{part}_proj.weight") for part in "qk")
    queries = (module.q_proj.out_features, module.q_proj.in_features)
    return (
        q is not None
        and k is not None
        and q.shape == queries
        and k.size(1) == module.k_proj.in_features
    )
