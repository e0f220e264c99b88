"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.training.criterions import (
    candidate_ranking,
    masked_lm,
    masked_lm_pairs,
    replaced_tokens,
    sentence_prediction,
    span_prediction,
)

__all__ = [
    "candidate_ranking",
    "masked_lm",
    "masked_lm_pairs",
    "replaced_tokens",
    "sentence_prediction",
    "span_prediction",
]
