"""Moving the parameters of a foreign checkpoint, and checking that none is left."""

from typing import Dict, List

import torch
from torch import Tensor

from fairseq_posenc.convert.dictionary import Vocabulary
from fairseq_posenc.convert.native import Parameters
from fairseq_posenc.errors import UsageError

#: Parameters by their names in a foreign checkpoint.
ForeignParameters = Dict[str, Tensor]


class Reader:
    """The parameters of a foreign checkpoint, in float32, as they are moved one by one.

    Args:
        path: the file, for messages.
        foreign: its tensors.
        vocabulary: gives the order of rows that belong to symbols.

    Attributes:
        rest: the tensors not taken yet.
        parameters: the converted parameters, by fairseq's names.
        origin: file and foreign name of each parameter.
    """

    def __init__(self, path: str, foreign: ForeignParameters, vocabulary: Vocabulary) -> None:
        self.path = path
        self.vocabulary = vocabulary
        self.rest = {name: value.float() for name, value in foreign.items()}
        self.parameters: Parameters = {}
        self.origin: Dict[str, str] = {}

    def __contains__(self, theirs: str) -> bool:
        return theirs in self.rest

    def take(self, theirs: str) -> Tensor:
        """Return a tensor, and remove it from :attr:`rest`.

        Raises:
            UsageError: there is no tensor of that name.
        """
        if theirs not in self.rest:
            raise UsageError(f"{self.path}: has no tensor {theirs}")
        return self.rest.pop(theirs)

    def put(self, ours: str, value: Tensor, theirs: str) -> None:
        """Store *value*, converted from the foreign tensor *theirs*, under fairseq's name."""
        self.parameters[ours] = value
        self.origin[ours] = f"{self.path}: {theirs}"

    def move(self, theirs: str, ours: str) -> None:
        """Move a tensor unchanged."""
        self.put(ours, self.take(theirs), theirs)

    def move_module(self, theirs: str, ours: str) -> None:
        """Move a module's weight and bias unchanged."""
        for kind in (".weight", ".bias"):
            self.move(theirs + kind, ours + kind)

    def move_rows(self, theirs: str, ours: str) -> None:
        """Move a tensor with one row per symbol, reordered as in fairseq's dictionary."""
        rows = self.vocabulary.rows(self.take(theirs), f"{self.path}: {theirs}")
        self.put(ours, rows, theirs)

    def split(self, theirs: str, ours: List[str], kind: str) -> None:
        """Split the joint weight or bias of several projections into equal parts."""
        for part, target in zip(self.take(theirs).chunk(len(ours)), ours):
            self.put(f"{target}.{kind}", part.clone(), theirs)

    def put_identity(self, ours: str, channels: int, theirs: str) -> None:
        """Store an identity projection where the foreign module *theirs* has none."""
        self.put(ours + ".weight", torch.eye(channels), theirs)
        self.put(ours + ".bias", torch.zeros(channels), theirs)

    def drop(self, *prefixes: str) -> List[str]:
        """Discard tensors that are not needed; returns their names."""
        dropped = sorted(name for name in self.rest if name.startswith(prefixes))
        for name in dropped:
            del self.rest[name]
        return dropped

    def finish(self, described_by: str) -> None:
        """Refuse a checkpoint with tensors that have not been taken.

        Args:
            described_by: the source of the model's settings, for the error message.

        Raises:
            UsageError: a tensor is left.
        """
        if self.rest:
            raise UsageError(
                f"{self.path}: unexpected tensor {sorted(self.rest)[0]} (and "
                f"{len(self.rest) - 1} more) for the model that {described_by} describes"
            )
