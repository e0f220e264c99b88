"""What a foreign format provides, and what passes between it and fairseq's checkpoints."""

from dataclasses import dataclass, field
from typing import Callable, Dict, Generic, List, NamedTuple, Optional, TypeVar

from torch import Tensor

from fairseq_posenc.convert.dictionary import Vocabulary
from fairseq_posenc.convert.native import NativeCheckpoint, Parameters, Settings

Source = TypeVar("Source")

#: Logits of tokens (B, T), in fairseq's numbers and right-padded, with segments (B, T): (B, T, V)
#: in the order of fairseq's dictionary, or (B, N) or (B, T, N) of a head.
Logits = Callable[[Tensor, Tensor], Tensor]


class ForeignModel(NamedTuple):
    """A foreign model, to compare a converted one with.

    Args:
        logits: what it computes.
        description: what is run for that, in words.
    """

    logits: Logits
    description: str


@dataclass
class Imported:
    """A model that has been read from a foreign format.

    Args:
        settings: flags of ``posenc_masked_lm``, by name.
        parameters: by fairseq's names, rows of the vocabulary in fairseq's order.
        origin: the foreign name of each parameter, for messages.
        head: name of the classification or token head that the foreign model applies, if any.
        notes: what the user should know.
    """

    settings: Settings
    parameters: Parameters
    origin: Dict[str, str]
    head: Optional[str] = None
    notes: List[str] = field(default_factory=list)


@dataclass
class Exported:
    """A model that has been written in a foreign format.

    Args:
        order: foreign number of each symbol of the dictionary, (V,).
        notes: what the user should know.
    """

    order: Tensor
    notes: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Format(Generic[Source]):
    """A foreign format: all that importing, exporting and ``--verify`` need to know of it.

    Args:
        name: what the command line calls it.
        summary: one clause for its help.
        open: reads the files of a model, given their path.
        vocabulary: reads the vocabulary, given the path of the model, and that of the vocabulary
            if it lies elsewhere.
        read: turns both into a model of this plug-in.
        foreign: the model as its own library or its formulas compute it, given the foreign number
            of each symbol of fairseq's dictionary, (V,).
        write: writes a checkpoint, with the head of that name or the language-model head, to an
            existing empty folder; None for formats that can only be imported.

    All raise :class:`~fairseq_posenc.errors.UsageError` for a file that is missing, damaged or of
    another kind, for sizes that do not agree, and for a model that the other side cannot express.
    """

    name: str
    summary: str
    open: Callable[[str], Source]
    vocabulary: Callable[[str, Optional[str]], Vocabulary]
    read: Callable[[Source, Vocabulary], Imported]
    foreign: Callable[[Source, Tensor], ForeignModel]
    write: Optional[Callable[[NativeCheckpoint, Optional[str], str], Exported]] = None
