"""Sinusoidal absolute positions added to the embeddings; the table is fairseq's own.

p_{i,2t} = sin(i / 10000^{2t/d}), p_{i,2t+1} = cos(...)  (RoFormer Eq. 31).  fairseq stores all
sines first and then all cosines, a fixed permutation of the channels.
"""

from fairseq_posenc.encodings.base import InputTable
from fairseq_posenc.encodings.registry import register_encoding


@register_encoding(
    "sinusoidal",
    paper="Vaswani et al. 2017, arXiv 1706.03762",
    summary="fixed sines and cosines added to the embeddings",
    relative=False,
)
class Sinusoidal(InputTable):
    """Fixed sines and cosines."""

    table = "sinusoidal"
