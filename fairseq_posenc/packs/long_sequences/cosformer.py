"""cosFormer: linear attention whose weights fall with the cosine of the distance.

Qin et al. 2022, arXiv 2202.08791.
"""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.base import register_attention
from fairseq_posenc.attention.functional import Batch
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.encodings import Encoding, Places
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.packs.long_sequences.lengths import complete_length, refuse_longer


@dataclass
class CosformerFlags(LinearFlags):
    """Flags of cosFormer."""

    cosformer_length: Optional[int] = setting(
        None,
        "M, in tokens, in the factor cos(π/2 · distance/M) of --attention cosformer, which is 0 at "
        "distance M (default: the longest input that the model accepts)",
        at_least=2,
        at_most=2**24,
    )


class CosineFeatures(FeatureMap):
    """φ(x_i) = [ReLU(x_i) cos(π i / 2M), ReLU(x_i) sin(π i / 2M)] (Qin et al. Eq. 9 and 10).

    φ(q_i)·φ(k_j) = ReLU(q_i)·ReLU(k_j) cos(π/2 · (i - j)/M) depends on positions only through
    their distance, and is not negative at distances below M.  M is fixed for a model: if M were the
    length of the batch, weights would depend on padding and, in decoding, on later tokens.
    """

    takes_positions = True

    def __init__(self, head_dim: int, options: Options, side: str) -> None:
        super().__init__(head_dim, options, side)
        self.angle = 0.5 * math.pi / int(options.cosformer_length)

    @classmethod
    def is_positive(cls, options: Options) -> bool:
        """False: ReLU is 0 for negative inputs."""
        return False

    @staticmethod
    def size(head_dim: int, options: Options) -> int:
        """2 D."""
        return 2 * head_dim

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ of queries (B, H, T, D), as (B, H, T, 2 D)."""
        assert positions is not None
        angles = (positions.to(q.dtype) * self.angle)[:, None, :, None]  # (1|B, 1, T, 1)
        q = F.relu(q)
        return torch.cat((q * angles.cos(), q * angles.sin()), dim=-1)

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """φ of keys (B, H, S, D), as (B, H, S, 2 D)."""
        return self.queries(k, positions)


@register_attention(
    "cosformer",
    paper="Qin et al. 2022, arXiv 2202.08791",
    summary="linear, with features relu(x), weighted by the cosine of the distance",
    flags=CosformerFlags,
)
class CosformerAttention(LinearAttention):
    """Linear attention weighted by the cosine of the distance.

    Arguments are those of :class:`LinearAttention`.
    """

    map_class = CosineFeatures

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Set ``--cosformer-length`` by default to the longest input; refuse shorter lengths."""
        super().check(options, encodings, stacks)
        why = "keys at larger distances would have negative weights"
        complete_length(options, stacks, "cosformer_length", why)

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """As for linear attention; refuses texts longer than M."""
        refuse_longer(self.encoding.options, "cosformer_length", batch)
        return super().prepare(batch, places)
