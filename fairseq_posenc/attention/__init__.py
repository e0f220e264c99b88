"""Attention: fused and explicit softmax, linear attention, gated units, and their registry.

A new self-attention in this package is one file and one line below.  A kernel of your own is a file
in your ``--user-dir`` that uses :func:`register_attention`.
"""

# ruff: noqa: F401 - the names of this folder, and imports that register

from fairseq_posenc.attention import softmax  # the default first

# isort: split
from fairseq_posenc.attention import linear

# isort: split
from fairseq_posenc.attention import local
from fairseq_posenc.attention.base import (
    ATTENTIONS,
    AttentionKernel,
    MultiheadKernel,
    register_attention,
)
from fairseq_posenc.attention.batch import Batch, Padding
from fairseq_posenc.attention.kernels import check_attention, kernel_of
