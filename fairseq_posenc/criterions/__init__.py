"""Criterions; importing this registers them with fairseq."""

from fairseq_posenc.criterions import sentence_prediction

__all__ = ["sentence_prediction"]
