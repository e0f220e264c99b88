"""The registry of self-attention kernels, and the flag ``--attention``."""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting

ATTENTIONS = ClassRegistry("--attention")
#: Decorates a subclass of :class:`~fairseq_posenc.attention.base.AttentionKernel`.
register_attention = ATTENTIONS.register


@dataclass
class AttentionFlags:
    """The flag of self-attention."""

    attention: Optional[str] = setting(
        "softmax",
        "self-attention: {choices}; all but softmax are linear in sequence length. In linear "
        "attention --attention-dropout drops keys for all queries of a head. Attention to the "
        "source is always softmax",
        role="model",
        choices=ATTENTIONS,
        needs={"layer": ("transformer",)},
    )
