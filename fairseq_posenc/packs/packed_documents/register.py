"""Importing this registers the encoder and the decoder."""

from fairseq_posenc.packs.packed_documents import (  # noqa: F401 - importing registers
    decoder,
    encoder,
)
