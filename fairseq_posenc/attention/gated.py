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

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, cast

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from fairseq_posenc.attention.base import JoinedParameters, launch_bound
from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import Batch, attend, drop, dropout_rate
from fairseq_posenc.attention.pairs import Counts, Heads, PairwiseKernel, log_ratio
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, no_autocast
from fairseq_posenc.encodings import Encoding, PositionEncoding, Stack
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import Needs, setting

# square roots of the divisors in GAU Table 1, to apply before squaring; n keys of size s
DIVISORS: Dict[str, Callable[[Counts, int], Counts]] = {
    "n*n": lambda n, s: n,
    "n": lambda n, s: n**0.5,
    "n*s": lambda n, s: (n * s) ** 0.5,
    "s*s": lambda n, s: float(s),
    # as printed in GAU Table 2, ReLU²(q·k / √s) / (n s)
    "n*s*s": lambda n, s: n**0.5 * s,
}
SOFTMAX, RELU = ("softmax_plus", "softmax"), ("squared_relu", "scaled_squared_relu")
_GATED: Needs = {"layer": ("gated",)}


@dataclass
class GatedFlags:
    """Flags of the gated attention unit."""

    gau_key_size: Optional[int] = setting(
        128, "s, the size of queries and keys", at_least=1, at_most=2**16, needs=_GATED
    )
    gau_expansion: Optional[int] = setting(
        2, "gate and value width e, as a multiple of channels", at_least=1, at_most=64, needs=_GATED
    )
    gau_offsets: Optional[bool] = setting(
        False,
        "add learned offsets to queries and keys after scaling them (GAU section 4.1)",
        needs=_GATED,
    )
    gau_normaliser: Optional[str] = setting(
        "softmax_plus",
        "attention weights: softmax_plus, a softmax with q·k multiplied by log(n) / log(reference "
        "length), where the query may see n keys; softmax; squared_relu, ReLU² divided by "
        "--gau-divisor; scaled_squared_relu, ReLU² divided by its sum over the keys",
        choices=(*SOFTMAX, *RELU),
        needs=_GATED,
    )
    gau_divisor: Optional[str] = setting(
        "n*s",
        "divisor of squared_relu: {choices}, for n keys of size s (GAU Table 1); "
        "scaled_squared_relu applies it to q·k before positional logits are added",
        choices=DIVISORS,
        needs={"gau_normaliser": RELU},
    )
    gau_length: Optional[str] = setting(
        "visible",
        "n in --gau-divisor and in attention between chunks: visible, the number of keys that a "
        "query may see; reference, --gau-reference-length for all queries",
        choices=("visible", "reference"),
        needs={"gau_divisor": [name for name in DIVISORS if "n" in name]},
    )
    gau_reference_length: Optional[int] = setting(
        512,
        "reference length, usually the length in training, in tokens",
        at_least=2,
        at_most=2**31 - 1,
        needs={"gau_normaliser": ("softmax_plus",), "gau_length": ("reference",)},
    )


def squared_relu(
    q: Tensor, k: Tensor, bias: Optional[Tensor], scale: Counts, scaled: bool
) -> Tensor:
    """Weights ReLU²(scale · q kᵀ + bias) in float32 (GAU section 2.3, Table 2).

    The scale is applied before squaring, so that models in half precision do not overflow.

    Args:
        q: queries (B, 1, T, s).
        k: keys (B, 1, S, s).
        bias: additive term (1|B, 1, 1|T, S), -inf at hidden keys, or None.
        scale: square root of 1/divisor, (1|B, 1, 1|T, 1), or one number for all queries.
        scaled: whether to divide every row by its sum.

    Returns:
        weights (B, 1, T, S), float32; zero at hidden keys.
    """
    wide = AT_LEAST_FLOAT32[q.dtype]
    with no_autocast(q.device):  # half precision would round small squares to zero
        logits = torch.matmul(q.to(wide) * scale, k.to(wide).transpose(-2, -1))
        if bias is not None:
            logits = logits + bias
        weights = F.relu(logits).square()
        if scaled:
            total = weights.sum(dim=-1, keepdim=True)
            weights = weights / total.clamp(min=torch.finfo(torch.float32).tiny)
        return weights


class GatedAttention(JoinedParameters, PairwiseKernel):
    """One gated attention unit (GAU sections 2.3 and 4.1).

    *encoding* is for a stack with one head of the key size; its options include the flags of
    :class:`GatedFlags`.
    """

    takes = frozenset({"transform", "shared", "content", "any_order"})
    static_cache = "keys"

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
        self.num_heads = num_heads
        self.head_dim = int(options.gau_key_size)  # s
        self.width = int(options.gau_expansion) * embed_dim  # e
        self.normaliser = str(options.gau_normaliser)
        self.compose(encoding)
        self.causal_in_bias = self.causal_in_bias or self.normaliser in RELU
        self.scales_by_length = self.normaliser != "softmax"
        self.dropout_module = FairseqDropout(dropout, module_name=type(self).__name__)
        inner = 2 * self.width + self.head_dim
        self.in_proj = quant_noise(nn.Linear(embed_dim, inner), q_noise, qn_block_size)
        self.out_proj = quant_noise(nn.Linear(self.width, embed_dim), q_noise, qn_block_size)
        self.q_scale = nn.Parameter(torch.ones(self.head_dim))
        self.k_scale = nn.Parameter(torch.ones(self.head_dim))
        offsets = bool(options.gau_offsets)
        self.q_offset = nn.Parameter(torch.zeros(self.head_dim)) if offsets else None
        self.k_offset = nn.Parameter(torch.zeros(self.head_dim)) if offsets else None
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.xavier_uniform_(self.out_proj.weight)

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse content-dependent logits unless the normaliser is a softmax."""
        for encoding in encodings:
            if encoding.content is not None and options.gau_normaliser not in SOFTMAX:
                raise UsageError(
                    f"--gau-normaliser {options.gau_normaliser}: does not support the "
                    f"content-dependent logits of --position-encoding {encoding.name}; give "
                    f"{' or '.join(SOFTMAX)}, or another encoding"
                )

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """One head of the key size."""
        return 1, options.gau_key_size

    @classmethod
    def size_flags(cls, options: Options, side: str) -> str:
        """``--gau-key-size``."""
        return "--gau-key-size"

    def length_factor(self, counts: Counts) -> Counts:
        """1 / √divisor; for softmax_plus log n / log(reference), n = *counts* (GAU section 3.3)."""
        options = self.encoding.options
        reference = float(options.gau_reference_length)
        if self.normaliser in SOFTMAX:
            return log_ratio(counts, reference)
        n = reference if options.gau_length == "reference" else counts
        return 1.0 / DIVISORS[options.gau_divisor](n, options.gau_key_size)

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """Masks and content-free logits, and the results of :meth:`.PairwiseKernel.terms`."""
        return {**super().prepare(batch, places), **self.terms(batch, places)}

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from new tokens to all tokens so far, and gate; see :class:`.AttentionKernel`."""
        new = self.project(x, prepared)
        heads = self.extended(new, x, incremental_state)
        v = heads.v
        if self.normaliser in SOFTMAX:
            q, scale, bias, _ = self.logits(x, heads, prepared, incremental_state)
            rate, causal = dropout_rate(self.dropout_module), prepared["causal"]
            out = attend(q, heads.k, v, scale, bias, causal, rate, prepared["empty_rows"])
        else:
            scaled = self.normaliser == "scaled_squared_relu"
            factor = cast(Counts, prepared["factor"])
            weights = squared_relu(heads.q, heads.k, prepared["bias"], factor, scaled)
            weights = drop(weights, self.dropout_module)
            with no_autocast(v.device):
                out = torch.matmul(weights, v.to(weights)).type_as(v)
        return self.out_proj(cast(Tensor, new.gate) * out.squeeze(1))  # (B, 1, T, e) -> (B, T, e)

    def project(self, x: Tensor, tables: Mapping[str, Any]) -> Heads:
        """Queries, keys, values and gates of the new tokens x (B, T, C), with positions applied."""
        u, v, z = self.split(x)
        q, k = self.queries_and_keys(z)
        plain = (q.transpose(1, 2), k.transpose(1, 2))
        return Heads(*self.transformed(q, k, v, tables), *plain, gate=u)

    def transformed(
        self, q: Tensor, k: Tensor, v: Tensor, tables: Mapping[str, Any]
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Transformed q, k and v, (B, 1, T, …), from q and k (B, T, 1, s) and v (B, T, e)."""
        v = v.unsqueeze(2)
        if self.encoding.transform is not None:
            q, k, v = self.encoding.transform(q, k, v, tables["table"])
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def split(self, x: Tensor) -> Tuple[Tensor, ...]:
        """U, V and Z, (B, T, e), (B, T, e) and (B, T, s), for the layer's input *x* (B, T, C)."""
        return F.silu(self.in_proj(x)).split((self.width, self.width, self.head_dim), dim=-1)

    def queries_and_keys(self, z: Tensor, kind: str = "") -> Tuple[Tensor, ...]:
        """Queries and keys (B, T, 1, s) from Z (B, T, s); names of parameters begin with *kind*."""
        scales, offsets = (self._both(f"{kind}{name}", z) for name in ("scale", "offset"))
        z = z.unsqueeze(2)
        both = z * scales if offsets is None else torch.addcmul(offsets, z, scales)
        return both.split(1, dim=2)

    def _parts(self, name: str) -> List[Any]:
        """The parameter *name*, (s), of the queries and that of the keys; [None, None] if unset."""
        *kind, what = name.split("_")
        return [getattr(self, "_".join((*kind, side, what)), None) for side in ("q", "k")]

    def _both(self, name: str, like: Tensor) -> Any:
        """The results of :meth:`_parts`, stacked, (2, s), or None if unset."""
        parts = self._parts(name)
        if parts[0] is None:
            return None
        whole = self.current({name: parts}) if launch_bound(like) else {}
        return whole[name].view(2, -1) if whole else torch.stack(parts)

    def joinable(self) -> Dict[str, List[Tensor]]:
        """The scales γ and the offsets b by name, each first for queries, then for keys."""
        names = ("scale", "offset", "linear_scale", "linear_offset")
        parts = {name: self._parts(name) for name in names}
        return {name: part for name, part in parts.items() if part[0] is not None}

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, normaliser={self.normaliser}"
