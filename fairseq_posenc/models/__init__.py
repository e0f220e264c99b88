"""Model families; importing this registers them with fairseq."""

from fairseq_posenc.models import multilingual, translation

__all__ = ["multilingual", "translation"]
