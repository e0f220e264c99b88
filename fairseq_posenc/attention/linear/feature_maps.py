"""Feature maps of linear attention: φ of queries and ϕ of keys, with sim(q, k) = φ(q)·ϕ(k).

They replace exp(q·k/√D) in RoFormer Eq. 10 and 11.  They are computed in float32 or wider, whatever
the model's precision.  In causal attention the features of a key do not depend on later keys.
"""

from typing import Optional, Tuple

from torch import Tensor, nn

from fairseq_posenc.flags.options import Options


class FeatureMap(nn.Module):
    """φ and ϕ of heads of D channels.

    Args:
        head_dim: D.
        options: the model configuration, read for the flags of a map.
        side: encoder or decoder; the two have different random features.
    """

    #: True to divide each feature of the keys by its sum over the keys that a query sees
    per_feature = False
    #: True if :meth:`queries` and :meth:`keys` read the positions of tokens
    takes_positions = False

    def __init__(self, head_dim: int, options: Options, side: str) -> None:
        super().__init__()

    @classmethod
    def is_positive(cls, options: Options) -> bool:
        """Whether features, and so the denominators of rotated features, are above 0."""
        return True

    @staticmethod
    def size(head_dim: int, options: Options) -> int:
        """M, the number of features of heads of *head_dim* channels."""
        return head_dim

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ of queries (B, H, T, D) at *positions* (1|B, T), as (B, H, T, M)."""
        raise NotImplementedError

    def stabiliser(self, k: Tensor, hidden: Optional[Tensor], size: int) -> Optional[Tensor]:
        """A shift (B, H, 1, 1) of the exponents of all keys in bidirectional attention, or None.

        *k* are all keys (B, S, H, D), *hidden* (B, S, 1, 1) is True at padding; the features of
        *size* keys fit into memory together.
        """
        return None

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ of keys (B, H, S, D), as (B, H, S, M).

        *stabiliser* is None in causal attention; *positions* (1|B, S) is None unless the map takes
        positions.
        """
        raise NotImplementedError

    def of_token(
        self, q: Tensor, k: Tensor, positions: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor]:
        """φ and ϕ of a query and a key (B, H, 1, D) in causal attention, without a gradient."""
        return self.queries(q, positions), self.keys(k, None, positions)

    def set_layer_index(self, layer: int) -> None:
        """Take the index of the layer in its stack; called once."""
