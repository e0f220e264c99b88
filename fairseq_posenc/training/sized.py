"""Data sets that know the number of tokens of each example."""

import numpy as np
from fairseq.data import FairseqDataset


class SizedDataset(FairseqDataset):
    """A data set of N examples, with the tokens of each in ``sizes`` (N,)."""

    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    def num_tokens(self, index: int) -> int:
        """Tokens of an example, for the size of batches."""
        return int(self.sizes[index])

    def size(self, index: int) -> int:
        """Tokens of an example, compared with the longest input."""
        return int(self.sizes[index])
