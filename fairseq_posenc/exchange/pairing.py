"""Converting between the two ways of pairing channels in rotary embeddings.

Interleaved (RoFormer Eq. 26) rotates channels (1, 2), (3, 4), …; half rotates (i, i + D/2).
Permuting the rows of both projections alike leaves all products of queries and keys unchanged.
"""

from torch import Tensor


def half_to_interleaved(rows: Tensor, heads: int) -> Tensor:
    """Reorder the channels of every head so that i and i + D/2 become neighbours.

    Args:
        rows: (H·D, …), the weight or bias of a projection.
        heads: H.
    """
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)
