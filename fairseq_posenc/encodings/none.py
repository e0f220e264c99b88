"""No position encoding: attention over a bag of tokens (in a decoder, of the previous ones)."""

from fairseq_posenc.encodings.base import InputTable
from fairseq_posenc.encodings.registry import register_encoding


@register_encoding(
    "none",
    paper="Haviv et al. 2022, arXiv 2203.16634",
    summary="no position information at all",
)
class NoPositions(InputTable):
    """Adds nothing to the embeddings."""
