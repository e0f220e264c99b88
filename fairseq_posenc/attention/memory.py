"""Segment-level recurrence: states of earlier segments as further keys and values.

Transformer-XL, Dai et al., arXiv 1901.02860, section 3.2.  A text is read in segments of T tokens.
The self-attention of layer n reads, beside the inputs h of its segment, the inputs m of up to N
tokens before it, which are not trained (SG):

    q = h W_q,   k, v = [SG(m) ∘ h] W_k, [SG(m) ∘ h] W_v

The memory is an argument of a forward pass and, moved on by T tokens, one of its results.
"""

from dataclasses import dataclass
from typing import List, Optional

import torch
from torch import Tensor

from fairseq_posenc.flags.settings import setting

#: The inputs of every layer for the same earlier tokens, (B, M, C) each; none at the first segment.
Memory = List[Tensor]


@dataclass
class MemoryFlags:
    """The flag of segment-level recurrence."""

    memory_length: Optional[int] = setting(
        0,
        "tokens of earlier segments that every layer attends to, for --task "
        "language_modeling_with_memory; 0 for none",
        role="free",
        at_least=0,
        at_most=2**31 - 1,
    )


def remembered(memory: Memory) -> int:
    """M, the number of tokens in *memory*."""
    return memory[0].size(1) if memory else 0


def moved_on(memory: Memory, inputs: List[Tensor], length: int) -> Memory:
    """The memory of the next segment: the last tokens of *memory* and *inputs*, without gradient.

    >>> first = moved_on([], [torch.arange(3.0).view(1, 3, 1)], length=4)
    >>> moved_on(first, [torch.arange(3.0, 5).view(1, 2, 1)], length=4)[0].flatten()
    tensor([1., 2., 3., 4.])

    Args:
        memory: the memory of this segment, before it is moved on.
        inputs: the inputs of the layers for this segment, (B, T, C) each.
        length: N, the most tokens to keep.
    """
    if length == 0:
        return []
    last = [x[:, -length:].detach() for x in inputs]
    if not memory:
        return [x.clone() for x in last]  # not a view, which would keep the rest
    kept = max(0, min(remembered(memory), length - inputs[0].size(1)))
    # a memory from a checkpoint is on the CPU
    return [torch.cat((m[:, m.size(1) - kept :].to(x), x), dim=1) for m, x in zip(memory, last)]
