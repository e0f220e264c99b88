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

from dataclasses import replace
from functools import partial
from typing import Any, Dict, List, Optional, Tuple, cast

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_posenc.attention.base import Abilities, AttentionKernel, HeadSizes
from fairseq_posenc.attention.cache import IncrementalState, append_to_cache, content_logits
from fairseq_posenc.attention.functional import attend, drop, dropout_rate, no_autocast, with_terms
from fairseq_posenc.attention.joint import join, joined, wanted
from fairseq_posenc.attention.normalisers import (
    DIVISORS,
    RELU,
    SOFTMAX,
    Counts,
    log_ratio,
    squared_relu,
)
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Content, Encoding
from fairseq_posenc.flags.options import Options


def length_factor(options: Options, counts: Counts) -> Counts:
    """log n / log(reference) of softmax_plus (GAU section 3.3), or 1 over the root of a divisor.

    Args:
        options: reads ``gau_normaliser``, ``gau_reference_length``, ``gau_length``,
            ``gau_divisor`` and ``gau_key_size``.
        counts: n, the number of keys that each query sees.
    """
    reference = float(options.gau_reference_length)
    if options.gau_normaliser in SOFTMAX:
        return log_ratio(counts, reference)
    n = reference if options.gau_length == "reference" else counts
    return 1.0 / DIVISORS[options.gau_divisor](n, options.gau_key_size)


class GatedAttention(AttentionKernel):
    """One gated attention unit (GAU sections 2.3 and 4.1).

    Args:
        embed_dim: C.
        num_heads: 1.
        encoding: position encoding of a stack with one head of the key size; its options are read
            for the flags of :class:`~fairseq_posenc.attention.normalisers.GatedFlags`.
        dropout: probability of dropping an attention weight.
        q_noise: quantisation noise.
        qn_block_size: its block size.
    """

    abilities = Abilities(
        hooks=("transform", "shared", "content"),
        takes_positions=True,
        static_cache="keys",
    )

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        encoding: PositionEncoding,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        options = encoding.options
        self.encoding, self.num_heads = encoding, num_heads
        self.head_dim = int(options.gau_key_size)  # s
        self.width = int(options.gau_expansion) * embed_dim  # e
        self.normaliser = str(options.gau_normaliser)
        self.position_terms = encoding.build_content_bias()
        #: the cache has keys before and after the transform
        self.keeps_both = self.position_terms is not None and encoding.transform is not None
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        inner = 2 * self.width + self.head_dim
        self.in_proj = quant_noise(nn.Linear(embed_dim, inner), q_noise, qn_block_size)
        self.out_proj = quant_noise(nn.Linear(self.width, embed_dim), q_noise, qn_block_size)
        self.q_scale = nn.Parameter(torch.ones(self.head_dim))
        self.k_scale = nn.Parameter(torch.ones(self.head_dim))
        offsets = bool(options.gau_offsets)
        self.q_offset = nn.Parameter(torch.zeros(self.head_dim)) if offsets else None
        self.k_offset = nn.Parameter(torch.zeros(self.head_dim)) if offsets else None
        #: γ, and b if there is one, of queries and keys in one tensor each, for generation
        self.joint: Dict[str, Tensor] = {}
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
        """ReLU² needs a bias to hide later keys; all but softmax have a length factor."""
        normaliser = options.gau_normaliser
        if normaliser == "softmax":
            return cls.abilities
        factor = partial(length_factor, options)
        return replace(cls.abilities, causal_in_bias=normaliser in RELU, length_factor=factor)

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
        length_factor: Optional[Counts] = None,
        uneven: bool = False,
        incremental_state: IncrementalState = None,
    ) -> Tensor:
        """Attend from the new tokens to all so far, and gate; see :class:`.AttentionKernel`."""
        q, k, v, content_q, content_k, u = self.project(x, table)
        of_keys = None if self.position_terms is None else self.position_terms.of_keys(x)
        if incremental_state is not None:
            kept = content_k if self.keeps_both else None
            k, v, content_k = append_to_cache(
                self, k, v, incremental_state, content_k=kept, of_keys=of_keys
            )
        terms = None
        if self.position_terms is not None:
            positions = (query_positions, key_positions, padding_mask)
            scale = self.encoding.scale
            content = Content(
                x, content_q, content_k, scale, *positions, of_keys=of_keys, uneven=uneven
            )
            terms = content_logits(
                self, content, distance_vectors, incremental_state, length_factor
            )
        if self.normaliser in SOFTMAX:
            q, scale, bias = with_terms(q, self.encoding.scale, bias, terms, length_factor)
            rate = dropout_rate(self.dropout_module)
            out = attend(q, k, v, scale, bias, causal, rate, empty_rows)
        else:  # a stack gives the factor to all normalisers but softmax
            scaled = self.normaliser == "scaled_squared_relu"
            weights = squared_relu(q, k, bias, cast(Counts, length_factor), scaled)
            weights = drop(weights, self.dropout_module)
            with no_autocast(v.device):
                out = torch.matmul(weights, v.to(weights)).type_as(v)
        return self.out_proj(u * out.squeeze(1))  # (B, 1, T, e) -> (B, T, e)

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
        q, k = self.queries_and_keys(z)
        before = (q.transpose(1, 2), k.transpose(1, 2))
        q, k, v = self.transformed(q, k, v.unsqueeze(2), table)
        return (q, k, v, *before, u)

    def split(self, x: Tensor) -> Tuple[Tensor, ...]:
        """U, V and Z of the layer's input (B, T, C), (B, T, e | e | s)."""
        return F.silu(self.in_proj(x)).split((self.width, self.width, self.head_dim), dim=-1)

    def queries_and_keys(self, z: Tensor, kind: str = "") -> Tuple[Tensor, ...]:
        """Queries and keys (B, T, 1, s) of Z (B, T, s); *kind* begins the names of parameters."""
        scales, offsets = (self._both(f"{kind}{name}", z) for name in ("scale", "offset"))
        z = z.unsqueeze(2)
        found = z * scales if offsets is None else torch.addcmul(offsets, z, scales)
        return found.split(1, dim=2)

    def _parts(self, name: str) -> List[Any]:
        """The parameters (s) of queries and of keys, each None if there is none."""
        *kind, what = name.split("_")
        return [getattr(self, "_".join((*kind, side, what)), None) for side in ("q", "k")]

    def _both(self, name: str, like: Tensor) -> Any:
        """γ or b of queries and keys, (2, s), or None if there are none."""
        parts = self._parts(name)
        if parts[0] is None:
            return None
        whole = self.joint.get(name)
        if whole is not None and wanted(like) and joined(whole, parts):
            return whole.view(2, -1)
        return torch.stack(parts)

    def transformed(
        self, q: Tensor, k: Tensor, v: Tensor, table: Optional[Tensor]
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Apply the position transform, if any, to (B, T, 1, s | s | e), as (B, 1, T, …)."""
        if table is not None and self.encoding.transform is not None:
            q, k, v = self.encoding.transform(q, k, v, table)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Join γ and b; fairseq calls this once for a model that will not be trained."""
        for name in ("scale", "offset", "linear_scale", "linear_offset"):
            parts: Any = self._parts(name)
            if parts[0] is not None:
                self.joint[name] = join(parts)

    def _apply(self, *args: Any, **kwargs: Any) -> "GatedAttention":
        """Join γ and b again after ``.half()`` and the like, which give them new memory."""
        super()._apply(*args, **kwargs)
        if self.joint:
            self.make_generation_fast_()
        return self

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        return f"{super().extra_repr()}, normaliser={self.normaliser}"
