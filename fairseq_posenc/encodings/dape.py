"""DAPE: a static bias that a small network adapts to the logits of all heads.

Zheng et al., arXiv 2405.14722, section 3:

    α_ij = a_ij + b_ij + f(a_ij, b_ij),    a_ij = q_i·k_j / √D of every head

where b is the bias of ALiBi, KERPLE or FIRE, and f is a network of two layers with a LeakyReLU in
between.  For a query and a key, f maps the 2H numbers a and b of all heads to H numbers.  Every
layer has its own f and b.  If another encoding rotates q and k, a is computed before the rotation.
"""

from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, no_autocast
from fairseq_posenc.encodings.alibi import Alibi
from fairseq_posenc.encodings.base import SharedBias, Stack
from fairseq_posenc.encodings.content import Content, ContentBias
from fairseq_posenc.encodings.fire import Fire
from fairseq_posenc.encodings.kerple import Kerple
from fairseq_posenc.encodings.registry import ENCODINGS, register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

_BIASES = {"alibi": Alibi, "kerple": Kerple, "fire": Fire}
#: Largest number of hidden units in memory at once: 16 MB in float32.
_SEGMENT = 2**22


@dataclass
class DapeFlags:
    """Flags of DAPE, in addition to those of the bias that it adapts."""

    dape_bias: Optional[str] = setting(
        "kerple", "the bias that DAPE adapts: {choices}", choices=tuple(_BIASES)
    )
    dape_width: Optional[int] = setting(
        32, "hidden units of DAPE's network", at_least=1, at_most=65536
    )


@register_encoding(
    "dape",
    paper="Zheng et al. 2024, arXiv 2405.14722",
    summary="the bias of alibi, kerple or fire, adapted to the products of queries and keys",
    flags=DapeFlags,
)
class Dape(ContentBias):
    """b_ij + f(a_ij, b_ij).

    The backward pass recomputes the W hidden units: saving them would take W/H times the memory
    of the logits.
    """

    takes_positions = True
    is_product = False

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.bias: SharedBias = _BIASES[options.dape_bias](options, stack)
        self.first = nn.Linear(2 * stack.num_heads, int(options.dape_width))
        self.second = nn.Linear(int(options.dape_width), stack.num_heads)

    @classmethod
    def shifts_freely(cls, options: Options) -> bool:
        """Whether the bias that DAPE adapts depends on distances alone."""
        return ENCODINGS[options.dape_bias].relative

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S), float32 or wider; arguments as in :class:`ContentBias`."""
        products, static = content.products, self.bias(content.places)  # (1|B, H, T, S)
        if torch.jit.is_tracing():  # a graph would keep the example's number of segments
            return static + self.adapted(products, static)
        batch, _, queries, keys = products.shape
        rows = max(1, _SEGMENT // (batch * keys * self.first.out_features))
        if rows >= queries:  # without segments, one compilation serves all lengths
            return static + self._segment(products, static)
        parts = zip(products.split(rows, dim=2), static.split(rows, dim=2))
        adapted = [self._segment(*part) for part in parts]
        return static + torch.cat(adapted, dim=2)

    def _segment(self, products: Tensor, static: Tensor) -> Tensor:
        """f for a segment of t queries, (B, H, t, S)."""
        if not torch.is_grad_enabled():
            return self.adapted(products, static)
        settings: Any = {"use_reentrant": False, "preserve_rng_state": False}
        return checkpoint(self.adapted, products, static, **settings)

    def adapted(self, products: Tensor, static: Tensor) -> Tensor:
        """f of a, *products* (B, H, T, S), and b, *static* (1|B, H, T, S); in float32 or wider."""
        with no_autocast(products.device):
            wide, shape = AT_LEAST_FLOAT32[products.dtype], products.shape[2:]
            products, static = products.to(wide).flatten(2), static.to(wide).flatten(2)
            of_products, of_bias = self.first.weight.split(products.size(1), dim=1)  # (W, H) each
            of_static = _mapped(static, of_bias, _column(self.first.bias))  # (1|B, W, T·S)
            hidden = F.leaky_relu(_mapped(products, of_products, of_static), inplace=True)
            adapted = _mapped(hidden, self.second.weight, _column(self.second.bias))
        return adapted.unflatten(2, shape)


def _mapped(x: Tensor, weight: Tensor, offset: Optional[Tensor]) -> Tensor:
    """*weight* (N, M) times *x* (B, M, P), plus *offset* (1|B, N, 1|P) unless it is None.

    This is a batch product, because ``torch.matmul`` would transpose *x* and the result in memory.
    """
    weights = weight.to(x.dtype).expand(x.size(0), -1, -1)
    if offset is None:
        return torch.bmm(weights, x)
    return torch.baddbmm(offset.to(x.dtype), weights, x)


def _column(bias: Optional[Tensor]) -> Optional[Tensor]:
    """*bias* (N) as (1, N, 1); None under ``--no-bias``."""
    return None if bias is None else bias[None, :, None]
