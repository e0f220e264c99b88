"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.criterions import (
    masked_lm,
    masked_lm_pairs,
    replaced_tokens,
    sentence_prediction,
)

__all__ = ["masked_lm", "masked_lm_pairs", "replaced_tokens", "sentence_prediction"]
