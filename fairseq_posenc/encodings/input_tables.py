"""Encodings that add one of fairseq's tables to the embeddings, or add nothing.

    learned      x_i + p_i with p in R^{L x C} trained (RoFormer Eq. 30; Gehring et al.; BERT)
    sinusoidal   p_{i,2t} = sin(i / 10000^{2t/d}), p_{i,2t+1} = cos(…)  (RoFormer Eq. 31)
    none         attention over a bag of tokens; in a decoder, of the previous tokens

fairseq's sinusoidal table has frequencies 10000^(-t/(d/2 - 1)), and all sines before all cosines.
"""

from fairseq_posenc.encodings.base import InputTable
from fairseq_posenc.encodings.registry import register_encoding


@register_encoding(
    "learned",
    paper="Gehring et al. 2017, arXiv 1705.03122; Devlin et al. 2019, arXiv 1810.04805",
    summary="a trained vector per position, added to the embeddings",
    relative=False,
    bounded=True,
)
class Learned(InputTable):
    """One trained vector per position."""

    table = "learned"


@register_encoding(
    "sinusoidal",
    paper="Vaswani et al. 2017, arXiv 1706.03762",
    summary="fixed sines and cosines, added to the embeddings",
    relative=False,
)
class Sinusoidal(InputTable):
    """Fixed sines and cosines."""

    table = "sinusoidal"


@register_encoding(
    "none", paper="Haviv et al. 2022, arXiv 2203.16634", summary="no position information at all"
)
class NoPositions(InputTable):
    """Adds nothing to the embeddings."""

    takes_positions = False
