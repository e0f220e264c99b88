"""Feature maps of linear attention: φ of queries and ϕ of keys, with sim(q, k) = φ(q)·ϕ(k).

In RoFormer Eq. 10 and 11, sim replaces exp(q·k/√D).  Features are computed in float32 or wider,
whatever the model's precision.  In causal attention, features of a key do not depend on later keys.
"""

from typing import Optional, Tuple

from torch import Tensor, nn

from fairseq_posenc.flags.options import Options


class FeatureMap(nn.Module):
    """φ and ϕ of heads of D channels.

    Args:
        head_dim: D.
        options: the model configuration, with the flags of the map.
        side: ``encoder`` or ``decoder``; the two have different random features.
    """

    #: True to divide each feature of the keys by its sum over the keys that a query sees
    per_feature = False
    #: True if :meth:`queries` and :meth:`keys` depend on the positions of tokens
    takes_positions = False

    def __init__(self, head_dim: int, options: Options, side: str) -> None:
        super().__init__()

    @classmethod
    def is_positive(cls, options: Options) -> bool:
        """Whether all features, and therefore the denominators of attention, are above 0."""
        return True

    @staticmethod
    def size(head_dim: int, options: Options) -> int:
        """M, the number of features of heads of *head_dim* channels."""
        return head_dim

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ, (B, H, T, M), of queries *q* (B, H, T, D) at *positions* (1|B, T)."""
        raise NotImplementedError

    def stabiliser(self, k: Tensor, hidden: Optional[Tensor], size: int) -> Optional[Tensor]:
        """A shift (B, H, 1, 1) of the exponents of all keys in bidirectional attention, or None.

        *k* are all keys (B, S, H, D), and *hidden* (B, S, 1, 1) is True at padding; *size* is the
        number of keys whose features may be in memory at once.
        """
        return None

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ, (B, H, S, M), of keys *k* (B, H, S, D).

        *stabiliser* is None in causal attention; *positions* (1|B, S) is None unless
        :attr:`takes_positions`.
        """
        raise NotImplementedError

    def of_token(
        self, q: Tensor, k: Tensor, positions: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor]:
        """φ and ϕ of a query and a key (B, H, 1, D) in causal attention, without a gradient."""
        return self.queries(q, positions), self.keys(k, None, positions)

    def set_layer_index(self, layer: int) -> None:
        """Called once with the index of the layer in its stack."""
