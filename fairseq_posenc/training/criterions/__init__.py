"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.training.criterions import (
    answers,
    masked_lm,
    replaced_tokens,
    sentence_prediction,
)

__all__ = ["answers", "masked_lm", "replaced_tokens", "sentence_prediction"]
