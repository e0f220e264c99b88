"""Taking the parameters out of a foreign checkpoint, so that none is forgotten."""

from typing import Dict, List

import torch
from torch import Tensor

from fairseq_posenc.convert.dictionary import Vocabulary
from fairseq_posenc.errors import UsageError


class Reader:
    """The parameters of a foreign checkpoint, in float32, and what has become of them.

    Args:
        path: the file, for messages.
        state: its tensors, by their foreign names.

    Attributes:
        rest: what has not been taken yet.
        state: what has been, by our names.
        origin: file and foreign name of each of those.
    """

    def __init__(self, path: str, state: Dict[str, Tensor]) -> None:
        self.path = path
        self.rest = {key: value.float() for key, value in state.items()}
        self.state: Dict[str, Tensor] = {}
        self.origin: Dict[str, str] = {}

    def __contains__(self, theirs: str) -> bool:
        return theirs in self.rest

    def take(self, theirs: str) -> Tensor:
        """A tensor, which then counts as used.

        Raises:
            UsageError: there is none of that name.
        """
        if theirs not in self.rest:
            raise UsageError(f"{self.path}: has no tensor {theirs}")
        return self.rest.pop(theirs)

    def put(self, ours: str, value: Tensor, theirs: str) -> None:
        """Give *value*, made from *theirs*, its name in our models."""
        self.state[ours] = value
        self.origin[ours] = f"{self.path}: {theirs}"

    def move(self, theirs: str, ours: str) -> None:
        """A tensor, as it is."""
        self.put(ours, self.take(theirs), theirs)

    def move_module(self, theirs: str, ours: str) -> None:
        """A module's weight and bias, as they are."""
        for kind in (".weight", ".bias"):
            self.move(theirs + kind, ours + kind)

    def move_rows(self, theirs: str, ours: str, vocabulary: Vocabulary) -> None:
        """A tensor with one row for each symbol, rows in our order."""
        rows = vocabulary.rows(self.take(theirs), f"{self.path}: {theirs}")
        self.put(ours, rows, theirs)

    def split(self, theirs: str, ours: List[str], kind: str) -> None:
        """The weight or bias of several projections at once, cut into equal parts."""
        for part, target in zip(self.take(theirs).chunk(len(ours)), ours):
            self.put(f"{target}.{kind}", part.clone(), theirs)

    def put_identity(self, ours: str, channels: int, theirs: str) -> None:
        """A projection that changes nothing, where *theirs* has none."""
        self.put(ours + ".weight", torch.eye(channels), theirs)
        self.put(ours + ".bias", torch.zeros(channels), theirs)

    def drop(self, *prefixes: str) -> List[str]:
        """Forget tensors that have no use here; returns their names."""
        dropped = sorted(key for key in self.rest if key.startswith(prefixes))
        for key in dropped:
            del self.rest[key]
        return dropped

    def finish(self, settings: str) -> None:
        """Refuse what is left.

        Args:
            settings: what describes the model, for the message.

        Raises:
            UsageError: something is left.
        """
        if self.rest:
            raise UsageError(
                f"{self.path}: there is no place for {sorted(self.rest)[0]} (and "
                f"{len(self.rest) - 1} more) in the model that {settings} describes"
            )
