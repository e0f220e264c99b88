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
    AttentionKernel,
    MultiheadKernel,
    register_attention,
)
from fairseq_posenc.attention.batch import Batch, Padding
from fairseq_posenc.attention.kernels import check_attention, kernel_of

__all__ = [
    "ATTENTIONS",
    "AttentionKernel",
    "Batch",
    "MultiheadKernel",
    "Padding",
    "check_attention",
    "kernel_of",
    "register_attention",
]
