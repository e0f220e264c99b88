"""No position encoding: attention that sees a bag of tokens (and, in a decoder, what came before)."""

from fairseq_posenc.encodings.base import Encoding

NONE = Encoding(
    name="none",
    paper="Haviv et al. 2022, arXiv 2203.16634",
    summary="no position information at all",
)
