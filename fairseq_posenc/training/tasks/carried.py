"""The memory on its way from batch to batch, and into checkpoints."""

import logging
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed
from fairseq.data.iterators import EpochBatchIterator
from torch import nn

from fairseq_posenc.attention.memory import Memory
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options

logger = logging.getLogger(__name__)


class Carried:
    """The memory between batches, of training or of validation.

    ``--amp`` reads the batches of an update again after an overflow, with the memories that they
    had the first time.
    """

    def __init__(self) -> None:
        self.following = 0
        self.memory: Memory = []
        self._given: Dict[int, Memory] = {}  # since the last update
        self._updated = False

    def before(self, segment: int) -> Memory:
        """The memory for *segment*, empty at the start of the streams."""
        memory: Memory = []
        if segment == self.following and segment > 0:
            memory = self.memory
        elif segment in self._given:
            memory = self._given[segment]
        elif segment > 0:
            logger.warning("segment %d is read without memory, since it follows none", segment)
        if self._updated and segment not in self._given:
            self._given.clear()
        self._updated = False
        self._given[segment] = memory
        return memory

    def after(self, segment: int, memory: Memory) -> None:
        """Keep the *memory* that follows *segment*."""
        self.following, self.memory = segment + 1, memory

    def updated(self) -> None:
        """Called after every update, and after every batch of validation."""
        self._updated = True


class Reading:
    """A model whose forward pass is given a memory, and the next memory that it returns.

    Args:
        model: a language model, possibly wrapped for several workers.
        memory: given to it.
    """

    def __init__(self, model: nn.Module, memory: Memory) -> None:
        self._model, self._memory = model, memory
        self.next_memory: Memory = memory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._model(*args, memory=self._memory, **kwargs)
        self.next_memory = output[1]["memory"]
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class StreamIterator(EpochBatchIterator):
    """Batches in order; within an epoch, its state includes the memory of all workers.

    Args:
        carried: the memory of training.
        streams: B of all workers together.
        kwargs: those of fairseq's iterator.
    """

    def __init__(self, carried: Carried, streams: int, **kwargs: Any) -> None:
        super().__init__(disable_shuffling=True, **kwargs)
        self.carried, self.streams = carried, streams
        self._gathered: Optional[Memory] = None

    def gather(self) -> None:
        """Collect the memory of all workers; all of them call it before one writes it."""
        if self.num_shards == 1 or self.end_of_epoch():
            return
        self._gathered = [self._of_all(layer) for layer in self.carried.memory]

    def _of_all(self, layer: torch.Tensor) -> torch.Tensor:
        """(B, M, C) of every worker, one after the other, in the memory of the host."""
        found: List[torch.Tensor] = []
        for worker in range(self.num_shards):  # one at a time, which takes the least memory
            part = layer.clone()
            torch.distributed.broadcast(part, src=worker)
            if self.shard_id == 0:
                found.append(part.cpu())
        return torch.cat(found) if found else layer

    def state_dict(self) -> Dict[str, Any]:
        """The state of fairseq's iterator and, within an epoch, the memory."""
        state = super().state_dict()
        if state["iterations_in_epoch"]:
            memory = self.carried.memory if self._gathered is None else self._gathered
            # clone: storages may be larger than their tensors
            state["memory"] = [layer.detach().cpu().clone() for layer in memory]
            state["streams"] = self.streams
        self._gathered = None
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Go on where *state_dict* was saved.

        Raises:
            UsageError: it was saved with another number of streams, or by another task.
        """
        segment = state_dict.get("iterations_in_epoch", 0)
        if segment:
            streams = state_dict.get("streams")
            if streams != self.streams:
                was = "another task" if streams is None else f"{streams} streams"
                raise UsageError(
                    f"--batch-size: the checkpoint was saved by {was} within an epoch, and this "
                    f"run has {self.streams} streams (--batch-size times the number of workers); "
                    "give the same, or --reset-dataloader to start at the beginning of the text"
                )
            rows = self.streams // self.num_shards
            first = self.shard_id * rows
            self.carried.after(
                segment - 1, [layer[first : first + rows] for layer in state_dict["memory"]]
            )
        super().load_state_dict(state_dict)


def gather_memories(save_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Let the workers collect their memories before one of them saves."""

    def wrapper(cfg: Options, trainer: Any, epoch_itr: Any, *args: object, **kwargs: object) -> Any:
        if isinstance(epoch_itr, StreamIterator) and not cfg.no_save:
            epoch_itr.gather()
        return save_checkpoint(cfg, trainer, epoch_itr, *args, **kwargs)

    return wrapper
