"""The gated attention unit: attention with one narrow head, inside a gated linear unit.

FLASH, Hua et al., arXiv 2202.10447; details and measurements from "Implementation and Experiments
for GAU-based Model", Liu (called GAU below), sections 2.3, 3 and 4.1:

    U, V, Z = swish(X W)                    of widths e, e, s
    Q = γ_q ⊙ Z,  K = γ_k ⊙ Z               with positions, for example rotary; + b_q and + b_k
                                            under --gau-offsets
    A = normalise(Q Kᵀ)                     one head
    O = (U ⊙ A V) W_o

Two units replace the attention and the feed-forward sub-layer of a Transformer layer.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_posenc.attention.base import Abilities, AttentionKernel, HeadSizes
from fairseq_posenc.attention.cache import IncrementalState, append_to_cache, reorder_cache
from fairseq_posenc.attention.content import content_logits
from fairseq_posenc.attention.functional import aligned, attend, drop, dropout_rate
from fairseq_posenc.attention.linear.precision import no_autocast
from fairseq_posenc.attention.normalisers import DIVISORS, RELU, SOFTMAX, squared_relu
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Content, Encoding
from fairseq_posenc.flags.options import Options

Bias = Optional[Tensor]


def length_factor(options: Options, counts: Tensor) -> Tensor:
    """log n / log(reference) of softmax_plus (GAU Eq. 8), or 1 over the root of a divisor.

    Args:
        options: reads ``gau_normaliser``, ``gau_reference_length``, ``gau_length``,
            ``gau_divisor`` and ``gau_key_size``.
        counts: n, the number of keys that each query sees, float32.
    """
    reference = float(options.gau_reference_length)
    if options.gau_normaliser in SOFTMAX:
        return counts.log() / math.log(reference)
    n = torch.full_like(counts, reference) if options.gau_length == "reference" else counts
    return 1.0 / DIVISORS[options.gau_divisor](n, options.gau_key_size)


class GatedAttention(AttentionKernel, FairseqIncrementalState, nn.Module):
    """One gated attention unit (GAU sections 2.3 and 4.1).

    Args:
        embed_dim: C.
        encoding: position encoding of a stack with one head of the key size.
        options: the model configuration, read for the flags of
            :class:`~fairseq_posenc.attention.normalisers.GatedFlags`.
        dropout: probability of dropping an attention weight.
        q_noise: quantisation noise.
        qn_block_size: its block size.
    """

    abilities = Abilities(content=True, values_like_keys=False)

    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]
    normalise: Callable[..., Tensor]

    def __init__(
        self,
        embed_dim: int,
        encoding: PositionEncoding,
        options: Options,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        self.encoding = encoding
        self.key_size = int(options.gau_key_size)
        self.width = int(options.gau_expansion) * embed_dim
        self.normalise = getattr(self, "_" + options.gau_normaliser)
        self.position_terms = encoding.build_content_bias()
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        inner = 2 * self.width + self.key_size
        self.in_proj = quant_noise(nn.Linear(embed_dim, inner), q_noise, qn_block_size)
        self.out_proj = quant_noise(nn.Linear(self.width, embed_dim), q_noise, qn_block_size)
        self.q_scale = nn.Parameter(torch.ones(self.key_size))
        self.k_scale = nn.Parameter(torch.ones(self.key_size))
        offsets = bool(options.gau_offsets)
        self.q_offset = nn.Parameter(torch.zeros(self.key_size)) if offsets else None
        self.k_offset = nn.Parameter(torch.zeros(self.key_size)) if offsets else None
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.xavier_uniform_(self.out_proj.weight)

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding]) -> None:
        """Refuse content-dependent logits with a normaliser that cannot add them."""
        if options.gau_normaliser in SOFTMAX:
            return
        for encoding in encodings:
            if encoding.content is not None:
                raise UsageError(
                    f"--gau-normaliser {options.gau_normaliser}: does not support the "
                    f"content-dependent logits of --position-encoding {encoding.name}; give "
                    f"{' or '.join(SOFTMAX)}, or another encoding"
                )

    @classmethod
    def abilities_for(cls, options: Options) -> Abilities:
        """ReLU² has no fused kernel to hide later keys; all but softmax scale by their number."""
        if options.gau_normaliser == "softmax":
            return cls.abilities
        explicit = options.gau_normaliser in RELU
        factor = partial(length_factor, options)
        return replace(cls.abilities, explicit_masks=explicit, length_factor=factor)

    @classmethod
    def head_sizes(cls, options: Options, side: str) -> HeadSizes:
        """One head of the key size."""
        return HeadSizes(1, options.gau_key_size, "--gau-key-size")

    def forward(
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        key_positions: Optional[Tensor] = None,
        padding_mask: Optional[Tensor] = None,
        distance_vectors: Optional[Tensor] = None,
        empty_rows: bool = True,
        length_factor: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
    ) -> Tuple[Tensor, None]:
        """Attend from the new tokens to all tokens so far, and gate.

        Args:
            x: layer input for the new tokens, (B, T, C).
            incremental_state: fairseq's cache; keys are cached after the position transform.

        The others are the entries of :class:`~fairseq_posenc.attention.base.Positions`.

        Returns:
            output (B, T, C), and None in place of attention weights.
        """
        q, k, v, content_q, content_k, u = self.project(x, table)
        if incremental_state is not None:
            k, v, content_k = append_to_cache(self, k, v, content_k, incremental_state)
        terms = None
        if self.position_terms is not None:
            positions = (query_positions, key_positions, padding_mask)
            content = Content(x, content_q, content_k, self.encoding.scale, *positions)
            terms = content_logits(self, content, distance_vectors, incremental_state)
        masks = (bias, causal, empty_rows)
        attended = self.normalise(q, k, v, terms, length_factor, *masks)  # (B, 1, T, e)
        return self.out_proj(u * attended.squeeze(1)), None

    def project(self, x: Tensor, table: Optional[Tensor]) -> Tuple[Tensor, ...]:
        """Queries, keys and values of the new tokens, with positions applied, and their gates.

        Args:
            x: layer input for the new tokens, (B, T, C).
            table: table of the position transform, or None.

        Returns:
            q and k (B, 1, T, s), v (B, 1, T, e); q and k before they are transformed; and u
            (B, T, e).
        """
        u, v, z = self.split(x)
        q, k = z * self.q_scale, z * self.k_scale
        if self.q_offset is not None and self.k_offset is not None:
            q, k = q + self.q_offset, k + self.k_offset
        q, k, v = q.unsqueeze(2), k.unsqueeze(2), v.unsqueeze(2)  # (B, T, 1, s | s | e)
        before = (q.transpose(1, 2), k.transpose(1, 2))
        q, k, v = self.transformed(q, k, v, table)
        return (q, k, v, *before, u)

    def split(self, x: Tensor) -> Tuple[Tensor, ...]:
        """U, V and Z of the layer's input (B, T, C), (B, T, e | e | s)."""
        return F.silu(self.in_proj(x)).split((self.width, self.width, self.key_size), dim=-1)

    def transformed(
        self, q: Tensor, k: Tensor, v: Tensor, table: Optional[Tensor]
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Apply the position transform, if any, to (B, T, 1, s | s | e), as (B, 1, T, …)."""
        if table is not None and self.encoding.transform is not None:
            q, k, v = self.encoding.transform(q, k, v, table)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _softmax(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        terms: Bias,
        factor: Optional[Tensor],
        bias: Bias,
        causal: bool,
        empty_rows: bool,
    ) -> Tensor:
        if terms is not None:
            bias = aligned(terms if bias is None else bias + terms)
        rate = dropout_rate(self.dropout_module)
        return attend(q, k, v, self.encoding.scale, bias, causal, rate, empty_rows)

    def _softmax_plus(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Bias, factor: Tensor, *masks: Any
    ) -> Tensor:
        if terms is not None:  # products with q, scaled like those with the keys
            terms = (terms * factor).type_as(terms)
        return self._softmax((q * factor).type_as(q), k, v, terms, factor, *masks)

    def _squared_relu(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Bias, factor: Tensor, bias: Bias, *_: bool
    ) -> Tensor:
        return self._attend(squared_relu(q, k, bias, factor, scaled=False), v)

    def _scaled_squared_relu(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Bias, factor: Tensor, bias: Bias, *_: bool
    ) -> Tensor:
        return self._attend(squared_relu(q, k, bias, factor, scaled=True), v)

    def _attend(self, weights: Tensor, v: Tensor) -> Tensor:
        weights = drop(weights, self.dropout_module)
        with no_autocast(v.device):
            return torch.matmul(weights, v.to(weights)).type_as(v)

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        name = self.normalise.__name__[1:]
        return f"encoding={self.encoding.name}, normaliser={name}, key_size={self.key_size}"

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """Number of tokens in this layer's cache."""
        saved = self.get_incremental_state(incremental_state, "attn_state") or {}
        return saved["prev_key"].size(2) if saved else 0

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """Reorder the cache along with the hypotheses of a beam search."""
        reorder_cache(self, incremental_state, new_order)
