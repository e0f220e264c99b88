"""Low-rank adaptation (LoRA): a trained projection stays as it is, and two small ones are added.

Hu et al. 2021, arXiv 2106.09685, section 4.1, Eq. 3:

    h = W₀ x + (α / r) B A x,    A of r rows, drawn at random; B of r columns, zeros at first
"""

from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.flags.settings import setting

#: The entry of an adapted model with the digest of its base: 16 numbers of 16 bits, as float32.
DIGEST = "low_rank_base"
#: The ends of the names of the trained matrices.
PARTS = (".lora_A", ".lora_B")


@dataclass
class LowRankFlags:
    """Flags of low-rank adaptation."""

    lora_rank: Optional[int] = setting(
        0,
        "rank r of the two trained matrices beside each projection that --lora-layers names, or 0 "
        "for none; needs --lora-base",
        role="model",
        at_least=0,
        at_most=2**16,
    )
    lora_alpha: Optional[float] = setting(
        16.0,
        "α: the product of the two matrices is multiplied by α / r",
        role="model",
        above=0,
        at_most=1e6,
        needs={"lora_rank": None},
    )
    lora_layers: Optional[str] = setting(
        "q_proj,v_proj",
        "names of the projections that get them, such as q_proj,k_proj,v_proj,out_proj,fc1,fc2, or "
        "self_attn.q_proj for those of one attention",
        role="model",
        needs={"lora_rank": None},
    )
    lora_base: Optional[str] = setting(
        None,
        "checkpoint that is adapted, whose parameters are not trained",
        role="free",
        needs={"lora_rank": None},
    )


class LowRankLinear(nn.Linear):
    """W₀ x + b + (α / r) B A x (Hu et al., Eq. 3).

    Args:
        frozen: the projection W₀ and b, (C_out, C_in), whose parameters are kept.
        rank: r.
        alpha: α.
    """

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float) -> None:
        nn.Module.__init__(self)  # no parameters of its own, nor random numbers for them
        self.in_features, self.out_features = frozen.in_features, frozen.out_features
        self.weight, self.bias = frozen.weight, frozen.bias
        self.scale = alpha / rank
        like = frozen.weight
        self.lora_A = nn.Parameter(like.new_empty(rank, like.size(1)))
        self.lora_B = nn.Parameter(like.new_zeros(like.size(0), rank))
        nn.init.normal_(self.lora_A, std=like.size(1) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C_out), for x (…, C_in)."""
        low = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return F.linear(x, self.weight, self.bias) + self.scale * low

    @torch.no_grad()
    def merged(self) -> Tensor:
        """W₀ + (α / r) B A."""
        return self.weight + self.scale * (self.lora_B @ self.lora_A)
