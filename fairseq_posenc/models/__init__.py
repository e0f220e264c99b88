"""Model families; importing this package registers them with fairseq."""

# ruff: noqa: F401 - re-exported names, and imports that register models

from fairseq_posenc.models import language_model, masked_lm, translation
from fairseq_posenc.models.family import FAMILIES, Family, family_of, register_preset
