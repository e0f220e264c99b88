"""TUPE's untied positions: position-to-position correlations with separate projections.

TUPE, Ke, He, Liu, arXiv 2006.15595.  Nothing is added to the embeddings; positions correlate with
positions and words with words, each scaled by 1/sqrt(2D) (Eq. 7):

    α_ij = 1/√(2D) · (x_i W^Q)·(x_j W^K)  +  1/√(2D) · (p_i U^Q)·(p_j U^K)

The second term is the same in every layer.  p is a row of a learned table, to which layer norm is
applied on use (section 3.3); U^Q and U^K differ by head and, as in the released code, have biases.
With ``--untie-cls``, ``tupe`` is TUPE-A (Eq. 10), and ``tupe+t5`` is TUPE-R (Eq. 11).
"""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import Places, SharedBias, Stack, init_normal
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class TupeFlags:
    """The flag of TUPE's correlations."""

    tupe_free: Optional[bool] = setting(
        False,
        "learn a separate logit for each head and pair of positions (tried in TUPE section 5) "
        "instead of vectors and projections; memory is quadratic in the number of positions",
    )


@register_encoding(
    "tupe",
    paper="Ke et al. 2021, arXiv 2006.15595",
    summary="position-to-position correlations with separate projections (TUPE)",
    flags=TupeFlags,
    logit_scale=2**-0.5,
    relative=False,
    bounded=True,
)
class UntiedPositions(SharedBias):
    """1/√(2D) · (LayerNorm(p_i) U^Q)·(LayerNorm(p_j) U^K) (Eq. 7).

    Under ``--untie-cls``, θ = 1/√(2D) · (p_θ U^Q)·(p_θ U^K) (section 3.3): p_θ1 is an additional
    row, and p_θ2 is the row of position 0, which has no other use because its correlations are
    reset.  Under ``--tupe-free`` the logits are a table of all pairs of positions (section 5).
    """

    free: Optional[nn.Parameter]

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        longest = stack.max_positions
        free = torch.empty(stack.num_heads, longest, longest) if options.tupe_free else None
        self.register_parameter("free", None if free is None else nn.Parameter(free))
        self.cls: Optional[nn.Embedding] = None
        if self.free is not None:
            nn.init.normal_(self.free, std=0.02)
            return
        self.head_dim = stack.head_dim
        self.scale = (2 * stack.head_dim) ** -0.5
        channels = stack.num_heads * stack.head_dim
        self.table = nn.Embedding(stack.max_positions, channels)
        self.cls = nn.Embedding(1, channels) if options.untie_cls else None
        self.norm = nn.LayerNorm(channels)
        self.q_proj = nn.Linear(channels, channels)
        self.k_proj = nn.Linear(channels, channels)
        init_normal(self.table, self.cls, self.q_proj, self.k_proj)

    def forward(self, places: Places) -> Tensor:
        """Logits (1|B, H, T, S)."""
        if self.free is not None:
            pairs = self.free[:, places.queries.unsqueeze(2), places.keys.unsqueeze(1)]
            return pairs.transpose(0, 1)
        q = self._heads(self.q_proj, self.table(places.queries)) * self.scale  # (1|B, T, H, D)
        k = self._heads(self.k_proj, self.table(places.keys))
        return torch.einsum("bthd,bshd->bhts", q, k)

    def cls_logits(self) -> Optional[Tensor]:
        """θ1 and θ2 of every head, (2, H), or None if this encoding does not compute them."""
        if self.cls is None:
            return None
        p = torch.cat((self.cls.weight, self.table.weight[:1]))  # (2, C)
        q = self._heads(self.q_proj, p) * self.scale  # (2, H, D)
        return (q * self._heads(self.k_proj, p)).sum(dim=-1)

    def _heads(self, projection: nn.Module, p: Tensor) -> Tensor:
        """LayerNorm(p) U for rows *p* (…, C), split by head: (…, H, D)."""
        return projection(self.norm(p)).view(*p.shape[:-1], -1, self.head_dim)
