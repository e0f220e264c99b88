"""The positions of the queries and keys of a forward pass."""

from typing import NamedTuple, Optional

from torch import Tensor


class Places(NamedTuple):
    """Positions of the queries and of the keys, in tokens."""

    queries: Tensor  # (1|B, T), int64
    keys: Tensor  # (1|B, S), int64
    bound: int  # a number above every distance between two of them; the host knows it
    # True if queries are the last T of S tokens and distances are differences of indices.
    # Encodings of distances then need no positions
    by_index: bool = False

    @property
    def distances(self) -> Optional[Tensor]:
        """Key minus query position, (1|B, T, S), or None if they are differences of indices."""
        return None if self.by_index else self.keys.unsqueeze(1) - self.queries.unsqueeze(2)
