"""Tasks; importing this registers them with fairseq."""

from fairseq_posenc.training.tasks import (
    language_modeling_with_memory,
    masked_lm_pairs,
)

__all__ = [
    "language_modeling_with_memory",
    "masked_lm_pairs",
]
