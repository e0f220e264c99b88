"""A message if a flag has nothing to act on in the first batches of training."""

from typing import Callable

#: Number of batches to look at.
PATIENCE = 10


class FirstBatches:
    """Logs a message, with ``%d`` for their number, if no first batch has what a flag acts on."""

    def __init__(
        self, log: Callable[[str, int], None], message: str, batches: int = PATIENCE
    ) -> None:
        self.log, self.message, self.batches = log, message, batches
        self.left = batches

    @property
    def waiting(self) -> bool:
        """Whether to look at the next batch."""
        return self.left > 0

    def saw(self, present: bool) -> None:
        """Count a batch; *present* tells whether the flag has something to act on."""
        self.left = 0 if present else self.left - 1
        if not present and self.left == 0:
            self.log(self.message, self.batches)
