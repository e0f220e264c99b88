"""Linformer: attention to a fixed number of linear combinations of all keys.

Wang et al. 2020, arXiv 2006.04768.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.attention.base import AttentionKernel, MultiheadKernel, register_attention
from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import Batch, attend, dropout_rate
from fairseq_posenc.encodings import Encoding, Places, PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.packs.long_sequences.lengths import complete_length, real_first, refuse_longer

#: Ways to share projections (Wang et al. section 4), from no sharing to one for all layers.
SHARING = ("none", "headwise", "key_value", "layerwise")


@dataclass
class LinformerFlags:
    """Flags of Linformer."""

    linformer_size: Optional[int] = setting(
        256,
        "k, the number of combinations of keys that queries attend to",
        at_least=1,
        at_most=2**16,
    )
    linformer_length: Optional[int] = setting(
        None,
        "n, the number of columns of the projections and so the longest sequence, in tokens "
        "(default: the longest input that the model accepts)",
        at_least=1,
        at_most=2**20,
    )
    linformer_sharing: Optional[str] = setting(
        "headwise",
        "which projections are shared: none, each head has two of its own; headwise, each layer "
        "has one for keys and one for values; key_value, each layer has a single one for both; "
        "layerwise, the model has a single one",
        choices=SHARING,
    )


@register_attention(
    "linformer",
    paper="Wang et al. 2020, arXiv 2006.04768",
    summary="softmax over a fixed number of linear combinations of keys; bidirectional only",
    flags=LinformerFlags,
)
class LinformerAttention(MultiheadKernel):
    """softmax(q (E K)ᵀ/√D) F V with learned E and F, (k, n) (Wang et al. Eq. 7).

    Shorter sequences use the first columns of E and F, and padding is left out.  E mixes the keys
    of all positions, so no logit is a function of a distance, even with rotated keys.
    Arguments are those of :class:`MultiheadKernel`.
    """

    bidirectional_only = "it combines the keys of all positions before it attends to them"

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
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
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Set ``--linformer-length`` by default to the longest input; refuse shorter lengths."""
        why = "the projections would have too few columns"
        complete_length(options, stacks, "linformer_length", why)

    def set_layer(self, index: int, first: AttentionKernel) -> None:
        """With ``--linformer-sharing layerwise``, use the projection of the first layer."""
        super().set_layer(index, first)
        if self.sharing == "layerwise":
            assert isinstance(first, LinformerAttention)
            self.key_projection = self.value_projection = first.key_projection

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """``padding_mask``, (B, T), True at padding, or None."""
        refuse_longer(self.encoding.options, "linformer_length", batch)
        return {"padding_mask": batch.padding.mask}

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend to combinations of all tokens; see :class:`.AttentionKernel`."""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        padding_mask = prepared["padding_mask"]
        if padding_mask is not None:
            k, v = (real_first(t, padding_mask)[0] for t in (k, v))
        k, v = self._combined(k, self.key_projection), self._combined(v, self.value_projection)
        q, rate = self.by_head(q).transpose(1, 2), dropout_rate(self.dropout_module)
        out = attend(q, k, v, self.encoding.scale, dropout=rate, empty_rows=False)
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, C)

    def _combined(self, x: Tensor, projection: Tensor) -> Tensor:
        """Combinations (B, H, k, D) of keys or values (B, T, C)."""
        columns = projection[:, :, : x.size(1)]
        if len(columns) == 1:  # (k, T) · (B, T, C)
            return self.by_head(torch.matmul(columns[0], x)).transpose(1, 2)
        return torch.einsum("hkt,bthd->bhkd", columns, self.by_head(x))

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        _, size, length = self.key_projection.shape
        return f"encoding={self.encoding.name}, {size} of {length}, sharing={self.sharing}"
