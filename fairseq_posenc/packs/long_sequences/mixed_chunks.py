"""Mixed chunk attention for gated units: quadratic within chunks, linear between them.

FLASH, Hua et al. 2022, arXiv 2202.10447, section 3.2.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.attention.blocks import chunked
from fairseq_posenc.attention.cache import (
    STATE,
    IncrementalState,
    counted,
    updates_in_place,
    writable,
)
from fairseq_posenc.attention.functional import Batch, additive_mask, drop, dropout_rate
from fairseq_posenc.attention.gated import GatedAttention, squared_relu
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, no_autocast
from fairseq_posenc.configuration.features import register_feature
from fairseq_posenc.encodings import Encoding, Places, PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.packs.long_sequences.lengths import put_back, real_first


@dataclass
class MixedChunkFlags:
    """The flag of mixed chunk attention."""

    gau_chunk: Optional[int] = setting(
        None,
        "mixed chunk attention: squared ReLU within chunks of this many tokens, linear attention "
        "between them (default: none, squared ReLU between all tokens)",
        at_least=1,
        at_most=2**16,
        needs={"gau_normaliser": ("squared_relu",)},
        traceable=(None,),
    )


register_feature(MixedChunkFlags)


class Projected(NamedTuple):
    """Queries, keys and values of tokens."""

    q: Tensor  # (B, T, s), within chunks
    k: Tensor  # (B, T, s), within chunks
    linear_q: Tensor  # (B, T, s), between chunks
    linear_k: Tensor  # (B, T, s), between chunks
    v: Tensor  # (B, T, e)


@register_replacement(
    "gau_chunk",
    of=GatedAttention,
    reads=["gau_length"],
    no_matrix="each chunk has its own attention matrix; give a model trained without the flag",
)
class MixedChunkAttention(GatedAttention):
    """A gated unit whose attention is the sum of a quadratic and a linear attention.

    Four scales (and offsets) of Z give two kinds of queries and keys, (q, k) and (q', k').  After
    removal of its padding, a sequence is split into chunks of C tokens.  For a query m in chunk g:

        quadratic_m = Σ_n ReLU²(q_m·k_n) / divisor · v_n          over the keys of chunk g
        linear_m    = Σ_n (q'_m·k'_n) / (N √s) · v_n              over the keys of all chunks, or,
                                                                  in a causal stack, before chunk g
        O = (U ⊙ (quadratic + linear)) W_o

    N (n in ``--gau-divisor``) is the number of keys in a sum, or ``--gau-reference-length``; the
    paper prints no divisors.  In decoding, the state holds the current chunk and two sums, one over
    the complete chunks and one over the current chunk.  Arguments are as in the base class.
    """

    takes = frozenset({"linear"})
    static_cache = ""

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        self.chunk = int(encoding.options.gau_chunk)
        self.linear_q_scale = nn.Parameter(torch.ones(self.head_dim))
        self.linear_k_scale = nn.Parameter(torch.ones(self.head_dim))
        offsets = self.q_offset is not None
        self.linear_q_offset = nn.Parameter(torch.zeros(self.head_dim)) if offsets else None
        self.linear_k_offset = nn.Parameter(torch.zeros(self.head_dim)) if offsets else None

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse normalisers that cannot be combined with linear attention."""
        if options.gau_normaliser != "squared_relu":
            raise UsageError(
                f"--gau-chunk {options.gau_chunk}: is not defined for --gau-normaliser "
                f"{options.gau_normaliser}; give squared_relu"
            )

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """``causal``, and ``padding_mask`` of the new tokens, (B, T), or None.

        No mask of all pairs is needed, and the chunks determine the numbers of keys.
        """
        return {"causal": batch.causal, "padding_mask": batch.new_padding}

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from the new tokens to all so far, and gate; see :class:`.AttentionKernel`."""
        u, v, z = self.split(x)
        inputs = (z, v, prepared)
        tokens = Projected(*self._pair("", *inputs), *self._pair("linear_", *inputs), v)
        padding_mask, causal = prepared["padding_mask"], prepared["causal"]
        with no_autocast(x.device):
            if incremental_state is not None:
                mixed = self._continued(tokens, padding_mask, incremental_state)
            else:
                mixed = self._whole(tokens, padding_mask, causal)
        return self.out_proj(u * mixed.type_as(u))

    def _pair(
        self, kind: str, z: Tensor, v: Tensor, tables: Mapping[str, Any]
    ) -> Tuple[Tensor, Tensor]:
        """Queries and keys of one *kind*, with positions, (B, T, s) each, from Z (B, T, s)."""
        q, k = self.queries_and_keys(z, kind)
        q, k, _ = self.transformed(q, k, v, tables)
        return q.squeeze(1), k.squeeze(1)

    def _whole(self, tokens: Projected, padding_mask: Optional[Tensor], causal: bool) -> Tensor:
        """Outputs (B, T, e), before gating, of whole sequences."""
        length, places = tokens.v.size(1), None
        counts = torch.full((1, 1), length, device=tokens.v.device)  # real tokens, (1|B, 1)
        if padding_mask is not None:
            counts = (~padding_mask).sum(dim=1, keepdim=True)
            sizes = [part.size(-1) for part in tokens]
            moved, places = real_first(torch.cat(tokens, dim=-1), padding_mask)
            tokens = Projected(*moved.split(sizes, dim=-1))
        size = min(self.chunk, length)
        q, k, linear_q, linear_k, v = (chunked(part, size) for part in tokens)
        first = torch.arange(0, v.size(1) * size, size, device=v.device)  # start of each chunk, (N)
        if causal:
            within = torch.arange(1, size + 1, device=v.device).view(1, 1, -1, 1)
            before, mask = first.view(1, -1, 1, 1), additive_mask(size, size, True, None, q)
        else:
            within = (counts - first).clamp(max=size).view(-1, len(first), 1, 1)
            before, mask = counts.view(-1, 1, 1, 1), None
        out = self._quadratic(q, k, v, within, mask)
        # (B, N, s, e)
        sums = torch.matmul(linear_k.to(out).transpose(-2, -1), self._dropped(v.to(out)))
        if causal:  # of earlier chunks alone
            sums = F.pad(sums[:, :-1], (0, 0, 0, 0, 1, 0)).cumsum(dim=1)
        else:
            sums = sums.sum(dim=1, keepdim=True)
        out = out + torch.matmul(linear_q.to(out) * self._linear_factor(before), sums)
        return put_back(out.flatten(1, 2)[:, :length], places, padding_mask)

    def _quadratic(
        self, q: Tensor, k: Tensor, v: Tensor, counts: Tensor, mask: Optional[Tensor]
    ) -> Tensor:
        """Outputs of attention within chunks, in float32 or wider.

        Args:
            q: (B, N, L, s).
            k: (B, N, C, s).
            v: (B, N, C, e).
            counts: number of keys of each query, (1|B, 1|N, 1|L, 1).
            mask: -inf at hidden keys, (1|B, 1, L, C), or None.
        """
        factor = self.length_factor(counts.clamp(min=1).float())
        weights = drop(squared_relu(q, k, mask, factor, scaled=False), self.dropout_module)
        return torch.matmul(weights, v.to(weights))

    def _dropped(self, v: Tensor) -> Tensor:
        """Values (…, e) of linear attention after dropping keys, the same keys for all queries."""
        rate = dropout_rate(self.dropout_module)
        return v * F.dropout(torch.ones_like(v[..., :1]), rate) if rate > 0 else v

    def _linear_factor(self, counts: Tensor) -> Tensor:
        """1/(n √s), where n is the number of keys (*counts*) or the reference length."""
        options = self.encoding.options
        n = counts.clamp(min=1).float()
        if options.gau_length == "reference":
            n = torch.full_like(n, float(options.gau_reference_length))
        return 1.0 / (n * self.head_dim**0.5)

    def _continued(
        self, tokens: Projected, padding_mask: Optional[Tensor], incremental_state: IncrementalState
    ) -> Tensor:
        """Outputs (B, T, e), before gating, of tokens after those in the cache."""
        state: Dict[str, Tensor] = self.get_incremental_state(incremental_state, STATE)
        if not state:
            state = self._empty_state(tokens)
        elif not (updates_in_place(tokens._asdict()) and writable(state["prev_key"])):
            state = {name: value.clone() for name, value in state.items()}
        batch, length = tokens.v.shape[:2]
        real = tokens.v.new_ones(batch, length, dtype=torch.bool)
        real = real if padding_mask is None else ~padding_mask
        steps = (Projected(*(part[:, i] for part in tokens)) for i in range(length))
        out = [self._step(step, real[:, i], state) for i, step in enumerate(steps)]
        seen = state["prev_tokens"].size(1) + length
        state["prev_tokens"] = counted(tokens.v, seen)
        self.set_incremental_state(incremental_state, STATE, state)
        return torch.stack(out, dim=1)

    def _empty_state(self, tokens: Projected) -> Dict[str, Tensor]:
        """The state before the first token: an empty chunk, and sums of zero."""
        k, v = tokens.k, tokens.v
        batch, s, e = len(v), k.size(-1), v.size(-1)
        wide = AT_LEAST_FLOAT32[v.dtype]
        return {
            "prev_key": k.new_zeros(batch, 1, self.chunk, s),
            "prev_value": v.new_zeros(batch, 1, self.chunk, e),
            "prev_products": v.new_zeros(batch, s, e, dtype=wide),  # sums over complete chunks
            "prev_pending": v.new_zeros(batch, s, e, dtype=wide),  # sums over the current chunk
            "prev_count": v.new_zeros(batch, dtype=torch.long),  # real tokens
            "prev_tokens": counted(v, 0),
        }

    def _step(self, token: Projected, real: Tensor, state: Dict[str, Tensor]) -> Tensor:
        """Output (B, e) of one *token*, with tensors (B, s) and (B, e); adds the token to *state*.

        *real* (B,) is False at padding, which is not counted in *state*.
        """
        count, pending = state["prev_count"], state["prev_pending"]
        slot = count % self.chunk
        begins = ((slot == 0) & real).view(-1, 1, 1)  # a chunk; the previous one is complete
        products = state["prev_products"] + pending.masked_fill(~begins, 0.0)
        rows = torch.arange(len(slot), device=slot.device)
        state["prev_key"][rows, 0, slot] = token.k
        state["prev_value"][rows, 0, slot] = token.v
        slots = torch.arange(self.chunk, device=slot.device)
        later = (slots > slot.unsqueeze(1)).view(-1, 1, 1, self.chunk)
        mask = products.new_zeros(later.shape).masked_fill_(later, float("-inf"))
        inputs = (state["prev_key"], state["prev_value"], (slot + 1).view(-1, 1, 1, 1), mask)
        quadratic = self._quadratic(token.q[:, None, None], *inputs)[:, 0, 0]
        factor = self._linear_factor((count - slot).view(-1, 1, 1))
        linear = torch.matmul(token.linear_q.to(products).unsqueeze(1) * factor, products)
        k, v = token.linear_k.to(products), self._dropped(token.v.to(products))
        product = (k.unsqueeze(2) * v.unsqueeze(1)).masked_fill(~real.view(-1, 1, 1), 0.0)
        state["prev_products"] = products
        state["prev_pending"] = pending.masked_fill(begins, 0.0) + product
        state["prev_count"] = count + real
        return (quadratic + linear.squeeze(1)).masked_fill(~real.unsqueeze(1), 0.0)

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        return f"{super().extra_repr()}, chunk={self.chunk}"
