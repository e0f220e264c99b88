"""A text cut into parallel streams, of which every batch reads the next segment.

Transformer-XL, Dai et al., arXiv 1901.02860, section 3.2.
"""

from typing import Any, Dict, List, Sequence

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError


class Corpus(FairseqDataset):
    """A text as one sequence of tokens, read where it is needed.

    Args:
        lines: fairseq's data set of lines, each with its end of sentence.
        start: the token before the first, the end of a sentence.
        padding: index of the padding.
        segment_length: T, in tokens.
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

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Tensor:
        return self.lines[index]

    def with_context(self, start: int, end: int) -> Tensor:
        """The tokens from *start* to *end*, exclusive, and the one before them.

        Returns:
            (end - start + 1), int64.
        """
        parts = [torch.tensor([self.start])] if start == 0 else []
        begin = max(start - 1, 0)
        first, last = np.searchsorted(self.ends, (begin, end - 1), side="right")
        if end > begin:
            text = torch.cat([self.lines[i] for i in range(first, last + 1)]).long()
            offset = begin - (int(self.ends[first - 1]) if first else 0)
            parts.append(text[offset : offset + end - begin])
        return torch.cat(parts)


class Streams(FairseqDataset):
    """The segments of several streams, which differ in length by at most one token.

    Item i is segment ``i // count`` of stream ``i % count``; each token of the text is predicted
    once.

    Args:
        corpus: the text.
        count: number of streams, of all workers together.

    Raises:
        UsageError: there are fewer tokens than streams.
    """

    def __init__(self, corpus: Corpus, count: int) -> None:
        if corpus.tokens < count:
            raise UsageError(
                f"--batch-size: {count} streams are more than the {corpus.tokens} tokens of the "
                "text; give a smaller one (or --batch-size-valid, or a smaller --max-tokens)"
            )
        self.corpus, self.count, self.length = corpus, count, corpus.segment_length
        self.bounds = [corpus.tokens * i // count for i in range(count + 1)]
        self.longest = -(-corpus.tokens // count)
        self.segments = -(-self.longest // self.length)
        self.sizes = np.full(len(self), self.length)

    def batches(self, rows: int) -> List[List[int]]:
        """Indices of the items of each batch of *rows* streams, those of a segment together."""
        return [list(range(i, i + rows)) for i in range(0, len(self), rows)]

    def __len__(self) -> int:
        return self.segments * self.count

    def __getitem__(self, index: int) -> Dict[str, Any]:
        segment, stream = divmod(index, self.count)
        end = self.bounds[stream + 1]
        first = min(self.bounds[stream] + segment * self.length, end)
        text = self.corpus.with_context(first, min(first + self.length, end))
        return {"id": index, "segment": segment, "source": text[:-1], "target": text[1:]}

    def collater(self, samples: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch (B, T), padded on the right where a stream has ended.

        Its width is that of the segment in the longest of all streams, so that the batches of all
        workers have one shape.
        """
        if not samples:
            return {}
        segment = samples[0]["segment"]
        width = min(self.length, self.longest - segment * self.length)

        def padded(key: str) -> Tensor:
            rows = torch.full((len(samples), width), self.corpus.padding, dtype=torch.int64)
            for row, sample in zip(rows, samples):
                row[: len(sample[key])] = sample[key]
            return rows

        lengths = torch.tensor([len(sample["source"]) for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "segment": segment,
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": padded("source"), "src_lengths": lengths},
            "target": padded("target"),
        }

    def num_tokens(self, index: int) -> int:
        """Number of tokens of an item, at most."""
        return self.length

    def size(self, index: int) -> int:
        """Number of tokens of an item, at most."""
        return self.length
