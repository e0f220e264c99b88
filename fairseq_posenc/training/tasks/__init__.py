"""Tasks; importing this registers them with fairseq."""

from fairseq_posenc.training.tasks import (
    candidate_ranking,
    language_modeling_with_memory,
    masked_lm_pairs,
    span_prediction,
)

__all__ = [
    "candidate_ranking",
    "language_modeling_with_memory",
    "masked_lm_pairs",
    "span_prediction",
]
