"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.training.criterions import masked_lm, replaced_tokens, sentence_prediction

__all__ = ["masked_lm", "replaced_tokens", "sentence_prediction"]
