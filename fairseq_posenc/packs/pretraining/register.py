"""Importing this registers the model and the criterion."""

from fairseq_posenc.packs.pretraining import (  # noqa: F401 - importing registers
    electra,
    replaced_tokens,
)
