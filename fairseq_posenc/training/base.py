"""Bases for tasks and criterions: data sets with sizes, and sums and rows of numbers to log."""

import math
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch
from fairseq.criterions import FairseqCriterion
from fairseq.data import FairseqDataset
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.meters import Meter
from torch import Tensor


class Sums:
    """The entries of logging outputs, summed over batches or workers; methods log their means.

    An entry that a logging output lacks counts as 0.
    """

    def __init__(self, logging_outputs: Sequence[Dict[str, Any]]) -> None:
        self._outputs = logging_outputs

    def __contains__(self, name: str) -> bool:
        return any(name in output for output in self._outputs)

    def __getitem__(self, name: str) -> Any:
        return sum(output.get(name, 0) for output in self._outputs)

    def log_bits(self, name: str, count: Any, digits: int = 3) -> None:
        """Log the mean of the loss *name* over *count* tokens or examples, in bits."""
        metrics.log_scalar(name, self[name] / count / math.log(2), count, round=digits)

    def log_percentage(self, name: str, right: str, count: Any) -> None:
        """Log the entry *right* as a percentage of *count*, under *name*."""
        metrics.log_scalar(name, 100.0 * self[right] / count, count, round=2)


class SummingCriterion(FairseqCriterion):
    """A criterion whose logging outputs hold only sums."""

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: fairseq may add the logging outputs of workers."""
        return True

    @staticmethod
    def output_of(sample: Dict[str, Any], each: Tensor, **more: Tensor) -> Tuple[Tensor, int, Any]:
        """The sum of the B losses *each* (B,), B, and a logging output with *more* sums."""
        loss, size = each.sum(), len(each)
        output = {"loss": loss.detach(), "ntokens": sample["ntokens"], "nsentences": size}
        return loss, size, {**output, "sample_size": size, **more}

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the mean loss of one or more batches, in bits."""
        sums = Sums(logging_outputs)
        sums.log_bits("loss", sums["sample_size"])


def rows_of_all_workers(rows: Tensor) -> Tensor:
    """The rows (N, K) of this worker, with space for the rows of the other workers.

    fairseq sums the logging outputs of all workers; the sum of these tensors has all rows.  fairseq
    zeroes the output of a worker that repeats a batch because it has no batch left.  Therefore a
    last column of ones marks the valid rows.

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
        """Add the valid rows of *gathered*, the sum of all workers' :func:`rows_of_all_workers`."""
        gathered = gathered.detach().cpu()
        self.batches.append(gathered[gathered[:, :, -1] > 0][:, :-1])

    def rows(self) -> Tensor:
        """All rows (N, K)."""
        return torch.cat(self.batches)

    @property
    def smoothed_value(self) -> int:
        """Number of rows."""
        return sum(map(len, self.batches))


class SizedDataset(FairseqDataset):
    """A data set of N examples, with their numbers of tokens in ``sizes`` (N,)."""

    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    def num_tokens(self, index: int) -> int:
        """The number of tokens of an example; fairseq uses it to limit the size of batches."""
        return int(self.sizes[index])

    def size(self, index: int) -> int:
        """The number of tokens of an example; fairseq compares it with the largest input size."""
        return int(self.sizes[index])
