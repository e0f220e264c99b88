"""Linformer: attention to a fixed number of linear combinations of all keys.

Wang et al. 2020, arXiv 2006.04768.
"""

from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor, nn

from fairseq_posenc.attention.base import Abilities, AttentionKernel
from fairseq_posenc.attention.functional import attend, dropout_rate, separate_masks
from fairseq_posenc.attention.padding import real_first
from fairseq_posenc.attention.registry import register_attention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: Sharing of projections (Wang et al. section 4), from none to all.
SHARING = ("none", "headwise", "key_value", "layerwise")


@dataclass
class LinformerFlags:
    """Flags of Linformer."""

    linformer_size: Optional[int] = setting(
        256,
        "k, the number of combinations of keys that queries attend to",
        role="model",
        at_least=1,
        at_most=2**16,
    )
    linformer_length: Optional[int] = setting(
        None,
        "n, the longest sequence that the projections have columns for, in tokens (default: the "
        "longest input that the model accepts)",
        role="model",
        at_least=1,
        at_most=2**20,
    )
    linformer_sharing: Optional[str] = setting(
        "headwise",
        "which projections are shared: none, each head has two of its own; headwise, a layer has "
        "one for keys and one for values; key_value, a layer has one; layerwise, a model has one",
        role="model",
        choices=SHARING,
    )


@register_attention(
    "linformer",
    paper="Wang et al. 2020, arXiv 2006.04768",
    summary="softmax over a fixed number of linear combinations of keys; bidirectional only",
    flags=LinformerFlags,
)
class LinformerAttention(AttentionKernel, StockMultiheadAttention):
    """softmax(q (E K)ᵀ/√D) F V with learned E and F, (k, n) (Wang et al. Eq. 7).

    Shorter sequences use the first columns of E and F, and padding none of them.

    Args:
        embed_dim: C.
        num_heads: H.
        encoding: the position encoding of this layer.
        kwargs: passed to fairseq's attention (dropout, quantisation noise).
    """

    abilities = Abilities(
        computes_logits=False,
        needs_positions=True,
        bidirectional_only="it combines the keys of all positions before it attends to them",
        masks=separate_masks,
        longest="linformer_length",
        why_longest="the projections have no columns then",
    )

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, self_attention=True, **kwargs)
        self.encoding = encoding
        options = encoding.options
        self.sharing = str(options.linformer_sharing)
        heads = num_heads if self.sharing == "none" else 1
        size, length = int(options.linformer_size), int(options.linformer_length)
        self.key_projection = nn.Parameter(torch.empty(heads, size, length))  # E
        self.value_projection = self.key_projection  # F
        if self.sharing in ("none", "headwise"):
            self.value_projection = nn.Parameter(torch.empty(heads, size, length))
        for projection in (self.key_projection, self.value_projection):
            nn.init.normal_(projection, std=size**-0.5)  # Wang et al., proof of Theorem 2

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding]) -> None:
        """Refuse encodings that rotate or otherwise transform keys.

        E sums transformed keys of all positions, so that no logit is a function of a distance.

        Raises:
            UsageError: naming the encoding.
        """
        for encoding in encodings:
            if encoding.transform is not None:
                raise UsageError(
                    f"--attention linformer: --position-encoding {encoding.name} transforms keys "
                    "by their positions, which are summed over before the product, so that no "
                    "product depends on a distance; give learned, sinusoidal or none"
                )

    def place(self, index: int, first: AttentionKernel) -> None:
        """Take the projection of the first layer, if all layers share it."""
        if self.sharing == "layerwise":
            assert isinstance(first, LinformerAttention)
            self.key_projection = self.value_projection = first.key_projection

    def forward(
        self,
        x: Tensor,
        padding_mask: Optional[Tensor] = None,
        incremental_state: object = None,
        need_weights: bool = False,
        **unused: object,
    ) -> Tuple[Tensor, None]:
        """Attend to combinations of all tokens.

        Args:
            x: layer input, (B, T, C).
            padding_mask: (B, T), True at padding, or None.
            incremental_state: not used; there is no causal form.
            need_weights: must be False.

        Returns:
            output (B, T, C), and None in place of attention weights.

        Raises:
            UsageError: *need_weights* is True, or there are more than n tokens.
        """
        self.refuse_weights(need_weights)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if padding_mask is not None:
            k, v = (real_first(t, padding_mask)[0] for t in (k, v))
        k, v = self._combined(k, self.key_projection), self._combined(v, self.value_projection)
        q, rate = self._by_head(q), dropout_rate(self.dropout_module)
        out = attend(q, k, v, self.encoding.scale, dropout=rate, empty_rows=False)
        return self.out_proj(out.transpose(1, 2).flatten(2)), None

    def _combined(self, x: Tensor, projection: Tensor) -> Tensor:
        """Combinations (B, H, k, D) of keys or values (B, T, C)."""
        columns = projection[:, :, : x.size(1)]
        if len(columns) == 1:  # (k, T) · (B, T, C)
            return self._by_head(torch.matmul(columns[0], x))
        return torch.einsum("hkt,bhtd->bhkd", columns, self._by_head(x))

    def _by_head(self, x: Tensor) -> Tensor:
        """(B, T, C) as (B, H, T, D)."""
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        _, size, length = self.key_projection.shape
        return f"encoding={self.encoding.name}, {size} of {length}, sharing={self.sharing}"

    def cached_length(self, incremental_state: object) -> int:
        """0: there is no cache, since there is no causal form."""
        return 0
