"""Content-free logits that are functions of the distance alone, computed once a distance."""

import torch
from torch import Tensor

from fairseq_posenc.encodings.base import SharedBias, Stack
from fairseq_posenc.options import Options


class DistanceBias(SharedBias):
    """Logits f_h(j - i), looked up in the values of f for all distances that occur.

    Args:
        options: reads ``random_positions``, up to which distances can reach.
        stack: the encoder or decoder.
    """

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.sampled_from = int(options.random_positions or 0)

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Logits (1|B, H, T, S) for positions (1|B, T) and (1|B, S)."""
        reach = max(key_positions.size(1), self.sampled_from)
        values = self.of_distances(torch.arange(1 - reach, reach, device=key_positions.device))
        rows = key_positions.unsqueeze(1) - query_positions.unsqueeze(2) + (reach - 1)
        found = values.index_select(1, rows.flatten()).view(-1, *rows.shape)  # (H, 1|B, T, S)
        return found.transpose(0, 1)

    def of_distances(self, distances: Tensor) -> Tensor:
        """Logits (H, N), at least float32, of *distances* (N), integers, key minus query."""
        raise NotImplementedError
