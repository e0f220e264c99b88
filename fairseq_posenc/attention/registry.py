"""The registry of self-attentions, and what ``--attention`` may say."""

from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from fairseq_posenc.registry import Registry
from fairseq_posenc.settings import setting

Kernel = TypeVar("Kernel", bound=type)


class Attention(NamedTuple):
    """A registered self-attention.

    Args:
        name: what ``--attention`` takes.
        paper: authors, year and arXiv number.
        summary: one clause.
        kernel: its class, with the interface of ``AttentionKernel``.
        flags: dataclass of its own flags, if any.
    """

    name: str
    paper: str
    summary: str
    kernel: Any
    flags: Optional[type]


ATTENTIONS: Registry[Attention] = Registry("--attention")


def register_attention(
    name: str, *, paper: str, summary: str, flags: Optional[type] = None
) -> Callable[[Kernel], Kernel]:
    """Make a self-attention known to ``--attention``, in every family.

    Args:
        name: what the flag takes.
        paper: authors, year and arXiv number.
        summary: one clause.
        flags: dataclass of its own flags, declared with :func:`~fairseq_posenc.settings.setting`.
    """

    def register(kernel: Kernel) -> Kernel:
        ATTENTIONS.add(name, Attention(name, paper, summary, kernel, flags))
        return kernel

    return register


@dataclass
class AttentionFlags:
    """The flag of self-attention."""

    attention: Optional[str] = setting(
        "softmax",
        "self-attention: {choices}; all but softmax are linear in sequence length, and there "
        "--attention-dropout drops keys, for all queries of a head. Attention to the source is "
        "always softmax",
        role="model",
        choices=ATTENTIONS,
    )
