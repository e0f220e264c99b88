"""Adapters, which are no whole models but change one, in every format of folders."""

from typing import Any, Callable, ContextManager, List, NamedTuple, Optional, Sequence, Tuple

from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.exchange.formats import Flag, ForeignModel, Wanted
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.verify import compare


class Written(NamedTuple):
    """A model of this plug-in that was written to a folder."""

    checkpoint: NativeCheckpoint  # the model
    head: Optional[str]  # the name of its head, None for the language-model head
    # what computes the logits of the folder's model, if anything can
    foreign: Optional[ForeignModel]
    notes: Sequence[str]  # what the user should know

    def compare(self, model: nn.Module) -> float:
        """The largest difference between the logits of a loaded model and of the folder's."""
        checkpoint = self.checkpoint
        return compare(model, checkpoint.kind, self.head, self.foreign, checkpoint.path)


#: Writes a whole model, given a request and a folder.
WritesWhole = Callable[[Wanted, str], Written]


class Adapter(NamedTuple):
    """A kind of adapter: its checkpoints of this plug-in, and its folders of another toolkit.

    With one in :data:`ADAPTERS`, every format of folders reads and writes it.
    """

    flags: Tuple[Flag, ...]  # those that an export takes for it
    import_flags: Tuple[Flag, ...]  # those that an import takes
    # true for the path of a checkpoint that holds nothing else
    is_checkpoint: Callable[[str], bool]
    # true for the path of a foreign folder that holds nothing else
    is_folder: Callable[[str], bool]
    # writes such a checkpoint to an existing empty folder, given the request, what writes a whole
    # model, the class of transformers that loads the folder (or None), and the folder; returns what
    # was written, and the largest difference of the logits if the request asks for it
    export: Callable[[Wanted, WritesWhole, Any, str], Tuple[Written, Optional[float]]]
    # makes a temporary folder of the whole model that such a folder makes of its base
    merged: Callable[[Wanted], ContextManager[str]]


ADAPTERS: List[Adapter] = []


def adapter_in(wanted: Wanted, holds: Callable[[Adapter], bool]) -> Optional[Adapter]:
    """The adapter that *wanted* names, or None for a whole model.

    Args:
        holds: whether its path is one of a kind of adapters.

    Raises:
        UsageError: there are flags of an adapter for a whole model.
    """
    found = next((each for each in ADAPTERS if holds(each)), None)
    for flag in () if found else (flag for each in ADAPTERS for flag in each.flags):
        if wanted.get(flag.name) is not None:
            raise UsageError(
                f"{flag_of(flag.name)} {wanted.get(flag.name)}: {wanted.path} is no adapter, it "
                "is a whole model; drop it"
            )
    return found
