"""Attention: fused and explicit softmax, linear attention, gated units, and their registry.

A new self-attention in this package is one file and one line below.  A kernel of your own is a file
in your ``--user-dir`` that uses :func:`register_attention`.
"""

from fairseq_posenc.attention import softmax  # noqa: F401 - importing registers; the default first

# isort: split
from fairseq_posenc.attention import linear  # noqa: F401

# isort: split
from fairseq_posenc.attention import local  # noqa: F401
from fairseq_posenc.attention.base import (
    ATTENTIONS,
    Abilities,
    AttentionKernel,
    HeadSizes,
    MultiheadKernel,
    Positions,
    register_attention,
)
from fairseq_posenc.attention.kernels import check_attention, complete_attention, kernel_of

__all__ = [
    "ATTENTIONS",
    "Abilities",
    "AttentionKernel",
    "HeadSizes",
    "MultiheadKernel",
    "Positions",
    "check_attention",
    "complete_attention",
    "kernel_of",
    "register_attention",
]
