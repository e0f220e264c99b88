"""Rows of numbers about single examples, gathered from all batches and workers of a validation."""

from typing import List

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging.meters import Meter
from torch import Tensor


def rows_of_all_workers(rows: Tensor) -> Tensor:
    """The rows of this worker, with space for those of the others.

    fairseq sums the logging outputs of workers, and zeroes that of a worker that had no batch left
    and repeated another.  The sum therefore concatenates the rows, and a last column of ones marks
    valid ones.

    Args:
        rows: the rows of this worker, (N, K).

    Returns:
        (workers, largest N, K + 1), float64, of which only this worker's entry is set.
    """
    workers, worker = distributed_utils.get_data_parallel_world_size(), 0
    longest = torch.tensor([len(rows)], device=rows.device)
    if workers > 1:
        worker = distributed_utils.get_data_parallel_rank()
        group = distributed_utils.get_data_parallel_group()
        longest = distributed_utils.all_reduce(longest, group=group, op="max")
    size = (workers, int(longest), rows.shape[1] + 1)
    gathered = rows.new_zeros(size, dtype=torch.double)
    gathered[worker, : len(rows), :-1] = rows
    gathered[worker, : len(rows), -1] = 1
    return gathered


class Rows(Meter):
    """Accumulates the valid rows of a validation set."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self.batches: List[Tensor] = []

    def update(self, gathered: Tensor) -> None:
        """Add the valid rows of what :func:`rows_of_all_workers` returned, summed over workers."""
        gathered = gathered.detach().cpu()
        self.batches.append(gathered[gathered[:, :, -1] > 0][:, :-1])

    def rows(self) -> Tensor:
        """All rows (N, K)."""
        return torch.cat(self.batches)

    @property
    def smoothed_value(self) -> int:
        """Number of rows."""
        return sum(map(len, self.batches))
