"""The gated attention unit: attention with one narrow head, inside a gated linear unit.

FLASH, Hua et al., arXiv 2202.10447; details and measurements from "Implementation and Experiments
for GAU-based Model", Liu (called GAU below), sections 2.3, 3 and 4.1:

    U, V, Z = swish(X W)                    of widths e, e, s
    Q = γ_q ⊙ Z,  K = γ_k ⊙ Z               and their positions, by rotary for instance
    A = normalise(Q Kᵀ)                     one head
    O = (U ⊙ A V) W_o

It does the work of an attention layer and of a feed-forward layer; two units replace both.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_posenc.attention.functional import add_terms, additive_mask, attend
from fairseq_posenc.attention.multihead import (
    IncrementalState,
    append_to_cache,
    attention_dropout,
    content_logits,
)
from fairseq_posenc.attention.normalisers import DIVISORS, squared_relu, visible_keys
from fairseq_posenc.encodings import PositionEncoding, parse_encodings
from fairseq_posenc.errors import UsageError, flag_of

Bias = Optional[Tensor]
LENGTHS = ("visible", "reference")


@dataclass
class GatedFlags:
    """Flags of the gated attention unit."""

    gau_key_size: Optional[int] = field(
        default=None, metadata={"help": "s, the size of queries and keys", "default": 128}
    )
    gau_expansion: Optional[int] = field(
        default=None, metadata={"help": "e as a multiple of the channels", "default": 2}
    )
    gau_normaliser: Optional[str] = field(
        default=None,
        metadata={
            "help": "softmax_plus: softmax of logits times log(n)/log(reference length), n being "
            "the keys that a query may see; softmax; squared_relu: ReLU² over --gau-divisor; "
            "scaled_squared_relu: ReLU² over its sum",
            "default": "softmax_plus",
        },
    )
    gau_divisor: Optional[str] = field(
        default=None,
        metadata={
            "help": f"of squared_relu: {', '.join(DIVISORS)} (GAU Table 1)",
            "default": "n*s",
        },
    )
    gau_length: Optional[str] = field(
        default=None,
        metadata={
            "help": "n in that divisor: visible, the keys that a query may see, or reference, "
            "the same for all",
            "default": "visible",
        },
    )
    gau_reference_length: Optional[int] = field(
        default=None, metadata={"help": "length in training, in tokens", "default": 512}
    )


class GatedAttention(FairseqIncrementalState, nn.Module):
    """One gated attention unit (GAU sections 2.3 and 4.1).

    Args:
        embed_dim: C.
        encoding: position encoding of a stack with one head of the key size.
        options: the model configuration, read for the flags of :class:`GatedFlags`.
        dropout: probability of dropping an attention weight.
        q_noise: quantisation noise.
        qn_block_size: its block size.

    Raises:
        UsageError: a flag has an unknown value, or the encoding cannot serve this layer.
    """

    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]
    normalise: Callable[..., Tensor]

    def __init__(
        self,
        embed_dim: int,
        encoding: PositionEncoding,
        options: Any,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        check_gated(options)
        self.encoding = encoding
        self.key_size = int(options.gau_key_size)
        self.width = int(options.gau_expansion) * embed_dim
        self.normalise = getattr(self, "_" + options.gau_normaliser)
        self.divisor = DIVISORS[options.gau_divisor]
        self.fixed = options.gau_length == "reference"
        self.reference = int(options.gau_reference_length)
        self.position_terms = encoding.build_layer()
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        inner = 2 * self.width + self.key_size
        self.in_proj = quant_noise(nn.Linear(embed_dim, inner), q_noise, qn_block_size)
        self.out_proj = quant_noise(nn.Linear(self.width, embed_dim), q_noise, qn_block_size)
        self.q_scale = nn.Parameter(torch.ones(self.key_size))
        self.k_scale = nn.Parameter(torch.ones(self.key_size))
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.xavier_uniform_(self.out_proj.weight)

    def forward(
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        key_positions: Optional[Tensor] = None,
        distance_vectors: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
    ) -> Tuple[Tensor, None]:
        """Attend from the new tokens to all tokens so far, and gate.

        Args:
            x: layer input for the new tokens, (T, B, C).
            bias: masks and content-free logits, (1|B, 1, 1|T, S), or None.
            causal: hide later keys where no *bias* does.
            table: what changes q and k at the new positions, such as a rotation, or None.
            query_positions: (1|B, T), for content-dependent terms; else None.
            key_positions: (1|B, S), likewise.
            distance_vectors: (N, L, s) of L distances, for those of N terms; else None.
            incremental_state: fairseq's cache; keys are kept already rotated.

        Returns:
            output (T, B, C), and None in place of attention weights.
        """
        q, k, v, content_q, content_k, u = self.project(x, table)
        k, v, content_k = append_to_cache(self, k, v, content_k, incremental_state)
        given = (query_positions, key_positions, distance_vectors, incremental_state)
        terms = content_logits(self, content_q, content_k, *given)
        attended = self.normalise(q, k, v, bias, terms, causal)  # (B, 1, T, e)
        return self.out_proj(u * attended.squeeze(1).transpose(0, 1)), None

    def project(self, x: Tensor, table: Optional[Tensor]) -> Tuple[Tensor, ...]:
        """Queries, keys and values of the new tokens, positions included, and their gates.

        Args:
            x: layer input for the new tokens, (T, B, C).
            table: what changes q and k at their positions, or None.

        Returns:
            q and k (B, 1, T, s), v (B, 1, T, e); q and k without what *table* does to them; and u
            (T, B, e).
        """
        sizes = (self.width, self.width, self.key_size)
        u, v, z = F.silu(self.in_proj(x)).split(sizes, dim=-1)  # (T, B, e | e | s)
        q, k = ((z * scale).unsqueeze(2) for scale in (self.q_scale, self.k_scale))
        mapped = self.encoding.map(q, k, v.unsqueeze(2), table)  # (T, B, 1, s | s | e)
        # -> (B, 1, T, s | s | e)
        return (*(t.permute(1, 2, 0, 3) for t in (*mapped, q, k)), u)

    def _softmax(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Bias, terms: Bias, causal: bool
    ) -> Tensor:
        bias = add_terms(bias, terms)
        return attend(q, k, v, self.encoding.scale, bias, causal, attention_dropout(self))

    def _softmax_plus(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Bias, terms: Bias, causal: bool
    ) -> Tensor:
        factor = visible_keys(q, k, bias, causal).log() / math.log(self.reference)
        if terms is not None:  # products with q, scaled like those with the keys
            terms = (terms * factor).type_as(terms)
        return self._softmax((q * factor).type_as(q), k, v, bias, terms, causal)

    def _squared_relu(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Bias, terms: Bias, causal: bool
    ) -> Tensor:
        return self._relu_forms(q, k, v, bias, causal, False)

    def _scaled_squared_relu(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Bias, terms: Bias, causal: bool
    ) -> Tensor:
        return self._relu_forms(q, k, v, bias, causal, True)

    def _relu_forms(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Bias, causal: bool, scaled: bool
    ) -> Tensor:
        if causal:
            bias = add_terms(bias, additive_mask(q.size(2), k.size(2), True, None, q))
        n = visible_keys(q, k, bias, causal=False)
        n = torch.full_like(n, float(self.reference)) if self.fixed else n
        weights = squared_relu(q, k, bias, 1.0 / self.divisor(n, self.key_size), scaled)
        return torch.matmul(F.dropout(weights, attention_dropout(self)), v.to(weights)).type_as(v)

    def extra_repr(self) -> str:
        """What ``print(model)`` says of this layer."""
        name = self.normalise.__name__[1:]
        return f"encoding={self.encoding.name}, normaliser={name}, key_size={self.key_size}"

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """How many tokens of this layer's cache precede the new ones."""
        saved = self.get_incremental_state(incremental_state, "attn_state") or {}
        return saved["prev_key"].size(2) if saved else 0

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """Let the cache follow a beam search."""
        saved = self.get_incremental_state(incremental_state, "attn_state")
        if saved is not None:
            new = {name: value.index_select(0, new_order) for name, value in saved.items()}
            self.set_incremental_state(incremental_state, "attn_state", new)


NORMALISERS = ("softmax_plus", "softmax", "squared_relu", "scaled_squared_relu")
_SOFTMAX = NORMALISERS[:2]


def check_gated(options: Any) -> None:
    """Refuse unknown values of the flags, and encodings that this layer has no place for.

    Raises:
        UsageError: naming the flag.
    """
    for name, known in (
        ("gau_normaliser", NORMALISERS),
        ("gau_divisor", tuple(DIVISORS)),
        ("gau_length", LENGTHS),
    ):
        if getattr(options, name) not in known:
            raise UsageError(
                f"{flag_of(name)} {getattr(options, name)}: must be {', '.join(known)}"
            )
    for name, least in (("gau_key_size", 1), ("gau_expansion", 1), ("gau_reference_length", 2)):
        if getattr(options, name) < least:
            raise UsageError(f"{flag_of(name)} {getattr(options, name)}: must be at least {least}")
    if options.gau_normaliser not in _SOFTMAX:
        for encoding in parse_encodings(options.position_encoding):
            if encoding.layer is not None:
                raise UsageError(
                    f"--gau-normaliser {options.gau_normaliser}: has no place for the "
                    f"content-dependent logits of --position-encoding {encoding.name}; give "
                    f"{' or '.join(_SOFTMAX)}, or another encoding"
                )
    if options.shaw_values:
        raise UsageError(
            "--shaw-values: the values of a gated attention unit are not of the keys' size, so "
            "nothing of that size can be added to them; drop the flag"
        )
    if options.rotary_value:
        raise UsageError(
            "--rotary-value: the values of a gated attention unit are not of the keys' size, so "
            "they cannot be rotated; drop the flag"
        )
