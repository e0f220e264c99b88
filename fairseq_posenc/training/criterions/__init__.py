"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.training.criterions import masked_lm, sentence_prediction

__all__ = ["masked_lm", "sentence_prediction"]
