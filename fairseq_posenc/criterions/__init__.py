"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.criterions import masked_lm, sentence_prediction, span_prediction

__all__ = ["masked_lm", "sentence_prediction", "span_prediction"]
