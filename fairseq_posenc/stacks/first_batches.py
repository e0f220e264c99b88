"""Messages that the first batches of a training have nothing that a flag acts on."""

from typing import Callable

#: Batches to wait for it.
PATIENCE = 10


class FirstBatches:
    """Logs once if none of the first batches has what is looked for.

    Args:
        log: writes the message.
        message: what to say, with ``%d`` for the number of batches.
        batches: how many to look at; 0 if nothing is looked for.
    """

    def __init__(
        self, log: Callable[[str, int], None], message: str, batches: int = PATIENCE
    ) -> None:
        self.log, self.message, self.batches = log, message, batches
        self.left = batches

    @property
    def waiting(self) -> bool:
        """Whether the next batch is looked at."""
        return self.left > 0

    def saw(self, found: bool) -> None:
        """Count a batch, in which it was *found* or not."""
        self.left = 0 if found else self.left - 1
        if not found and self.left == 0:
            self.log(self.message, self.batches)
