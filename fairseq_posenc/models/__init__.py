"""Model families; importing this registers them with fairseq."""

# ruff: noqa: F401 - the names of this folder, and imports that register

from fairseq_posenc.models import language_model, masked_lm, translation
from fairseq_posenc.models.family import FAMILIES, Family, family_of, register_preset
