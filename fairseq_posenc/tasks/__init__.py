"""Tasks; importing this registers them with fairseq."""

from fairseq_posenc.tasks import span_prediction

__all__ = ["span_prediction"]
