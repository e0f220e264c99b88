"""Tasks; importing this registers them with fairseq."""

from fairseq_posenc.tasks import language_modeling_with_memory, span_prediction

__all__ = ["language_modeling_with_memory", "span_prediction"]
