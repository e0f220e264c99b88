"""Importing this registers the flag, the encoder and the decoder."""

from fairseq_posenc.packs.packed_documents import stacks  # noqa: F401 - importing registers
