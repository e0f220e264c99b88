"""Ways of pre-training beside masked tokens: replaced-token detection."""

from fairseq_posenc.packs.pretraining import (  # noqa: F401 - importing registers
    electra,
    replaced_tokens,
)
