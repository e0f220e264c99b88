"""Interface between foreign formats and fairseq's checkpoints."""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Callable, Dict, Generic, List, Mapping, NamedTuple, Optional, TypeVar

from torch import Tensor

from fairseq_posenc.exchange.dictionary import Vocabulary
from fairseq_posenc.exchange.kinds import MASKED, Kind, Parameters, Settings
from fairseq_posenc.exchange.native import NativeCheckpoint

Source = TypeVar("Source")

#: Logits of right-padded tokens (B, T), numbered as in fairseq, with segments (B, T): (B, T, V) in
#: the order of fairseq's dictionary, or (B, N) or (B, T, N) for a head.
Logits = Callable[[Tensor, Tensor], Tensor]


class ForeignModel(NamedTuple):
    """A foreign model, as the reference for a converted one.

    Args:
        logits: computes its logits.
        description: the implementation that computes them, for messages.
        heads: logits of classification heads beside those of the tokens, by their names.
    """

    logits: Logits
    description: str
    heads: Mapping[str, Logits] = MappingProxyType({})


@dataclass
class Imported:
    """A model read from a foreign format.

    Args:
        settings: flags of the model, by name.
        parameters: by fairseq's names, rows of the vocabulary in fairseq's order.
        origin: the foreign name of each parameter, for messages.
        head: name of the classification or token head of the foreign model, if any.
        notes: what the user should know.
        kind: what it becomes.
    """

    settings: Settings
    parameters: Parameters
    origin: Dict[str, str]
    head: Optional[str] = None
    notes: List[str] = field(default_factory=list)
    kind: Kind = MASKED


@dataclass
class Exported:
    """A model written in a foreign format.

    Args:
        order: foreign number of each symbol of the dictionary, (V,).
        notes: what the user should know.
    """

    order: Tensor
    notes: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Format(Generic[Source]):
    """A foreign format: the functions that importing, exporting and ``--verify`` need.

    Args:
        name: its name on the command line.
        summary: one clause for its help.
        open: reads the files of a model, given their path.
        vocabulary: reads the vocabulary, given the path of the model and, if it is elsewhere, that
            of the vocabulary.
        read: converts both to a model of this plug-in.
        foreign: the model as computed by its library or its formulas, given the foreign number of
            each symbol of fairseq's dictionary, (V,).
        write: writes a checkpoint with the named head, or the language-model head, to an existing
            empty folder; None for formats that can only be imported.

    All of them raise :class:`~fairseq_posenc.basics.errors.UsageError` for files that are missing,
    damaged or of another kind, for mismatched sizes, and for models that the other side cannot
    express.
    """

    name: str
    summary: str
    open: Callable[[str], Source]
    vocabulary: Callable[[str, Optional[str]], Vocabulary]
    read: Callable[[Source, Vocabulary], Imported]
    foreign: Callable[[Source, Tensor], ForeignModel]
    write: Optional[Callable[[NativeCheckpoint, Optional[str], str], Exported]] = None
