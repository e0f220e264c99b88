"""Model families; importing this registers them with fairseq."""

from fairseq_posenc.models import translation

__all__ = ["translation"]
