"""What a foreign format has to provide, and what passes between it and fairseq's."""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from torch import Tensor

from fairseq_posenc.convert.dictionary import Vocabulary
from fairseq_posenc.convert.native import NativeCheckpoint

State = Dict[str, Tensor]

#: Logits of tokens (B, T), in our numbers and right-padded, with segments (B, T): (B, T, V) in our
#: order, or (B, N) or (B, T, N) of the head.
Reference = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Imported:
    """A model that has been read from a foreign format.

    Args:
        settings: flags of ``posenc_masked_lm``, by name.
        state: parameters by our names, rows of the vocabulary in our order.
        origin: the foreign name of each of them, for messages.
        vocabulary: the symbols, and which foreign number each of ours had.
        reference: computes the foreign side, for ``--verify``.
        compared_with: what *reference* runs, in words.
        head: name of the classification or token head that *reference* applies, if any.
        notes: what the user should know.
    """

    settings: Dict[str, Any]
    state: State
    origin: Dict[str, str]
    vocabulary: Vocabulary
    reference: Reference
    compared_with: str
    head: Optional[str] = None
    notes: List[str] = field(default_factory=list)


@dataclass
class Exported:
    """What writing a foreign format has left on the disk.

    Args:
        reference: computes the foreign side from the files written.
        compared_with: what *reference* runs, in words.
        head: name of the head that went along, if any.
        notes: what the user should know.
    """

    reference: Reference
    compared_with: str
    head: Optional[str] = None
    notes: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Format:
    """One registered format.

    Args:
        name: what the command line calls it.
        summary: one clause for its help.
        read: takes the path of a model, and of its vocabulary if that lies elsewhere.
        write: takes a checkpoint of ours, the name of a head or None, and an existing empty folder.
    """

    name: str
    summary: str
    read: Callable[[str, Optional[str]], Imported]
    write: Optional[Callable[[NativeCheckpoint, Optional[str], str], Exported]] = None
