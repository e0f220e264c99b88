"""A learned table of absolute positions added to the embeddings (Gehring et al.; BERT).

x_i + p_i with p in R^{L x C} trained (RoFormer Eq. 30); the table is fairseq's own.
"""

from fairseq_posenc.encodings.base import InputTable
from fairseq_posenc.encodings.registry import register_encoding


@register_encoding(
    "learned",
    paper="Gehring et al. 2017, arXiv 1705.03122; Devlin et al. 2019, arXiv 1810.04805",
    summary="a trained vector per position added to the embeddings",
    relative=False,
    bounded=True,
)
class Learned(InputTable):
    """One trained vector per position."""

    table = "learned"
