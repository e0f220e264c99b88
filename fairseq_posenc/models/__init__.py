"""Model families; importing this registers them with fairseq."""

from fairseq_posenc.models import language_model, masked_lm, translation
from fairseq_posenc.models.family import FAMILIES, Family, family_of, register_preset

__all__ = [
    "FAMILIES",
    "Family",
    "family_of",
    "language_model",
    "masked_lm",
    "register_preset",
    "translation",
]
