"""Cuts a text into parallel streams; every batch reads the next segment of each stream.

Transformer-XL, Dai et al., arXiv 1901.02860, section 3.2.
"""

import logging
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import torch
import torch.distributed
from fairseq.data import data_utils
from fairseq.data.iterators import EpochBatchIterator
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.packs.long_sequences.memory import Memory
from fairseq_posenc.training.base import SizedDataset

logger = logging.getLogger(__name__)


class Corpus(SizedDataset):
    """The *lines* of a text as one sequence of tokens, read on demand.

    *start* is the token that precedes the text, an end of sentence; *segment_length* is in tokens.
    """

    def __init__(self, lines: Any, start: int, padding: int, segment_length: int) -> None:
        self.lines, self.start, self.padding = lines, start, padding
        self.segment_length = segment_length
        self.ends = np.cumsum(np.asarray(lines.sizes, dtype=np.int64))
        self.sizes = np.asarray(lines.sizes)

    @property
    def tokens(self) -> int:
        """Number of tokens of the text."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, index: int) -> Tensor:
        return self.lines[index]

    def with_context(self, start: int, end: int) -> Tensor:
        """The tokens from *start* to *end*, exclusive, after the token that precedes them."""
        parts = [torch.tensor([self.start])] if start == 0 else []
        begin = max(start - 1, 0)
        first, last = np.searchsorted(self.ends, (begin, end - 1), side="right")
        if end > begin:
            text = torch.cat([self.lines[i] for i in range(first, last + 1)]).long()
            offset = begin - (int(self.ends[first - 1]) if first else 0)
            parts.append(text[offset : offset + end - begin])
        return torch.cat(parts)


class Streams(SizedDataset):
    """The segments of all workers' *count* streams; stream lengths differ by at most one token.

    Item i is segment ``i // count`` of stream ``i % count``; each token of the text is predicted
    once.

    Raises:
        UsageError: there are fewer tokens than streams.
    """

    def __init__(self, corpus: Corpus, count: int) -> None:
        if corpus.tokens < count:
            raise UsageError(
                f"--batch-size: {count} streams are more than the {corpus.tokens} tokens of the "
                "text; give a smaller --batch-size, --batch-size-valid or --max-tokens"
            )
        self.corpus, self.count, self.length = corpus, count, corpus.segment_length
        self.bounds = [corpus.tokens * i // count for i in range(count + 1)]
        self.longest = -(-corpus.tokens // count)
        self.segments = -(-self.longest // self.length)
        self.sizes = np.full(self.segments * self.count, self.length)  # upper bounds

    def batches(self, rows: int) -> List[List[int]]:
        """Indices of the items of each batch: the same segment of *rows* streams."""
        return [list(range(i, i + rows)) for i in range(0, len(self), rows)]

    def __getitem__(self, index: int) -> Dict[str, Any]:
        segment, stream = divmod(index, self.count)
        end = self.bounds[stream + 1]
        first = min(self.bounds[stream] + segment * self.length, end)
        text = self.corpus.with_context(first, min(first + self.length, end))
        return {"id": index, "segment": segment, "source": text[:-1], "target": text[1:]}

    def collater(self, samples: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch (B, T), padded on the right where a stream has ended.

        It is as wide as the segment of the longest stream, so that the batches of all workers have
        the same shape.
        """
        if not samples:
            return {}
        segment = samples[0]["segment"]
        width = min(self.length, self.longest - segment * self.length)

        def padded(key: str) -> Tensor:
            rows = [sample[key] for sample in samples]
            return data_utils.collate_tokens(rows, self.corpus.padding, pad_to_length=width)

        lengths = torch.tensor([len(sample["source"]) for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "segment": segment,
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": padded("source"), "src_lengths": lengths},
            "target": padded("target"),
        }


class Carried:
    """The memory that training, or validation, carries from batch to batch.

    Memories since the last update are kept: after an overflow, ``--amp`` repeats the batches.
    """

    def __init__(self) -> None:
        self.memory: Memory = []  # after the latest segment
        self._before: Dict[int, Memory] = {}  # before each segment since the last update
        self._updated = False

    def before(self, segment: int) -> Memory:
        """The memory for *segment*, empty at the start of the streams."""
        if segment == 0:
            self._before = {0: []}
        elif segment not in self._before:
            logger.warning("segment %d is read without memory: no segment was read before", segment)
            self._before[segment] = []
        memory = self._before[segment]
        if self._updated and segment == max(self._before):  # the update is not repeated
            self._before = {segment: memory}
        self._updated = False
        return memory

    def after(self, segment: int, memory: Memory) -> None:
        """Keep the *memory* that follows *segment*."""
        self.memory = self._before[segment + 1] = memory

    def updated(self) -> None:
        """Mark an update, or a batch of validation, as complete."""
        self._updated = True


class StreamIterator(EpochBatchIterator):
    """Iterates over batches in order; within an epoch, the state has the memory of all workers.

    *carried* is the memory of training; *streams* is the number of streams of all workers.
    """

    def __init__(self, carried: Carried, streams: int, **kwargs: Any) -> None:
        super().__init__(disable_shuffling=True, **kwargs)
        self.carried, self.streams = carried, streams
        self._gathered: Optional[Memory] = None

    def gather(self) -> None:
        """Collect the memory of all workers; each must call this before one saves a checkpoint."""
        if self.num_shards == 1 or self.end_of_epoch():
            return
        self._gathered = [self._of_all(layer) for layer in self.carried.memory]

    def _of_all(self, layer: Tensor) -> Tensor:
        """*layer* (B, M, C) of all workers, concatenated on the CPU."""
        parts: List[Tensor] = []
        for worker in range(self.num_shards):  # one at a time, to save memory
            part = layer.clone()
            torch.distributed.broadcast(part, src=worker)
            if self.shard_id == 0:
                parts.append(part.cpu())
        return torch.cat(parts) if parts else layer

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
        """Continue where *state_dict* was saved.

        Raises:
            UsageError: it was saved with a different number of streams, or by another task.
        """
        segment = state_dict.get("iterations_in_epoch", 0)
        if segment:
            streams = state_dict.get("streams")
            if streams != self.streams:
                was = "another task" if streams is None else f"{streams} streams"
                raise UsageError(
                    f"--batch-size: the checkpoint was saved by {was} within an epoch, and this "
                    f"run has {self.streams} streams (--batch-size times the number of workers); "
                    "give the same number, or --reset-dataloader to start the text again"
                )
            rows = self.streams // self.num_shards
            first = self.shard_id * rows
            self.carried.after(
                segment - 1, [layer[first : first + rows] for layer in state_dict["memory"]]
            )
        super().load_state_dict(state_dict)


def gather_memories(save_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *save_checkpoint*: all workers collect their memories before one of them saves."""

    def wrapper(cfg: Options, trainer: Any, epoch_itr: Any, *args: object, **kwargs: object) -> Any:
        if isinstance(epoch_itr, StreamIterator) and not cfg.no_save:
            epoch_itr.gather()
        return save_checkpoint(cfg, trainer, epoch_itr, *args, **kwargs)

    return wrapper
