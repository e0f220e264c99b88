"""Base of kernels that compute a logit for every query and key: softmax and gated attention."""

import math
from typing import Any, Dict, NamedTuple, Optional, Union

import torch
from torch import Tensor

from fairseq_posenc.attention.base import AttentionKernel
from fairseq_posenc.attention.cache import COLUMN, TERMS, IncrementalState, append_to_cache
from fairseq_posenc.attention.functional import Batch, aligned
from fairseq_posenc.attention.grouped import repeat_heads
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.encodings.content import Content, ContentBiasSum

#: Numbers of keys that queries see, or factors computed from them: (1|B, 1, 1|T, 1), float32, or
#: one number for all queries.
Counts = Union[float, Tensor]


def log_ratio(counts: Counts, reference: float) -> Counts:
    """log n / log N of softmax_plus (GAU section 3.3), n = *counts* and N = *reference*."""
    log = counts.log() if torch.is_tensor(counts) else math.log(counts)
    return log / math.log(reference)


def count_visible(batch: Batch, number: bool) -> Counts:
    """Number of keys visible to each query, at least 1.

    >>> x = torch.zeros(1, 2, 4)
    >>> count_visible(Batch(x, length=3, causal=True), number=True).flatten()
    tensor([2., 3.])
    >>> count_visible(Batch(x, length=3), number=True)
    3.0

    If *number* is True and all queries see the same number n > 1 of keys, the result is a Python
    number.  For n = 1, the scale of logits would become log 1 = 0, and the fused kernels of GPUs
    would multiply hidden logits of -inf by it.
    """
    queries, length, mask = batch.like.size(1), batch.length, batch.padding.mask
    if mask is None:
        first = length - queries + 1 if batch.causal else length
        if number and first == length > 1:
            return float(length)
        counts = torch.arange(first, length + 1, device=batch.like.device)
        return counts.float().view(1, 1, -1, 1)
    real = ~mask
    seen = real.long().cumsum(dim=1)[:, -queries:] if batch.causal else real.sum(1, keepdim=True)
    return seen.clamp(min=1).float()[:, None, :, None]


class Heads(NamedTuple):
    """Queries, keys and values of a layer, with positions applied."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, G, S, D)
    v: Tensor  # (B, G, S, D or e)
    plain_q: Tensor  # queries before the transform, (B, H, T, D)
    plain_k: Tensor  # keys before the transform, (B, G, S, D)
    # further tensors of keys for content-dependent terms, (B, H, S, …) each
    states: Optional[Dict[str, Tensor]] = None
    gate: Optional[Tensor] = None  # U of a gated unit, (B, T, e)


class Logits(NamedTuple):
    """The terms of a layer's logits scale · q kᵀ + bias, and the inputs of its content terms."""

    q: Tensor  # (B, H, T, D)
    scale: float
    bias: Optional[Tensor]  # (1|B, 1|H, 1|T, S)
    content: Optional[Content]


class PairwiseKernel(AttentionKernel):
    """A kernel that computes a logit for every query and key.

    A subclass calls :meth:`compose` in its constructor.  With a cache or content-dependent terms,
    its forward pass calls :meth:`extended` on its projections, and :meth:`logits` on the result.
    """

    #: the content-dependent terms of this layer, or None
    position_terms: Optional[ContentBiasSum]
    #: True if the kernel multiplies q·k by :meth:`length_factor`
    scales_by_length = False
    #: True if the layer is compiled, so that its prepared arguments must be tensors
    compiled = False

    def compose(self, encoding: PositionEncoding) -> None:
        """Set the encoding of this layer, and build the layer's content-dependent terms."""
        self.encoding = encoding
        self.position_terms = encoding.build_content_bias()
        self.causal_in_bias = self.position_terms is not None

    def set_layer(self, index: int, first: AttentionKernel) -> None:
        """Also store the content-dependent terms in the encoding, under the layer's *index*."""
        super().set_layer(index, first)
        if self.position_terms is not None:
            self.encoding.layer_terms[index] = self.position_terms

    def length_factor(self, counts: Counts) -> Counts:
        """The factor on q·k for queries that see *counts* keys, shaped like *counts*."""
        raise NotImplementedError

    def terms(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """Prepared arguments in addition to those of :func:`.masks`.

        With content-dependent terms: ``places``, ``padding_mask`` (B, S) or None, and ``vectors``
        of all distances or None.  With a :meth:`length_factor`: ``factor``, its result.
        """
        prepared: Dict[str, Any] = {}
        if self.position_terms is not None:
            prepared["places"], prepared["padding_mask"] = places, batch.padding.mask
            prepared["vectors"] = self.encoding.distance_vectors(places, batch.like)
        if self.scales_by_length:
            # each number would recompile a compiled layer, and become a constant of a traced graph
            number = not (self.compiled or torch.jit.is_tracing())
            prepared["factor"] = self.length_factor(count_visible(batch, number))
        return prepared

    def extended(self, heads: Heads, x: Tensor, incremental_state: IncrementalState) -> Heads:
        """The queries of *heads* with the keys and values of all tokens so far.

        The new keys and values are added to the cache; *x* (B, T, C) is the input of the new keys.
        """
        new = {"prev_key": heads.k, "prev_value": heads.v}
        if self.position_terms is not None:
            new.update(self.position_terms.key_states(x))
            # content-dependent terms use plain keys, so these are cached, too
            if self.encoding.transform is not None:
                new["prev_content_key"] = heads.plain_k
        if incremental_state is not None:
            new = append_to_cache(self, new, incremental_state)
        k, v = new["prev_key"], new["prev_value"]
        plain_k = new.get("prev_content_key", k)
        return Heads(heads.q, k, v, heads.plain_q, plain_k, states=new)

    def logits(
        self,
        x: Tensor,
        heads: Heads,
        prepared: Dict[str, Any],
        incremental_state: IncrementalState = None,
    ) -> Logits:
        """The logits of the new queries, including content-dependent terms and length factor.

        *x* (B, T, C) is the input of the layer, *heads* the result of :meth:`extended`.
        """
        q, scale, bias, content = heads.q, self.encoding.scale, prepared["bias"], None
        factor: Union[float, Tensor, None] = prepared.get("factor")
        if self.position_terms is not None:
            keys = repeat_heads(heads.plain_k, self.num_heads)
            at = (prepared["places"], prepared["padding_mask"])
            content = Content(x, heads.plain_q, keys, scale, *at, heads.states or {})
            # all hypotheses share the projected vectors, so beam search need not reorder them
            projected: Any = self.get_incremental_state(incremental_state, TERMS) or {}
            terms = self.position_terms(content, prepared["vectors"], projected, factor)
            # a step recorded as a CUDA graph does not store them: parameters may change later
            if incremental_state is not None and COLUMN not in incremental_state:
                self.set_incremental_state(incremental_state, TERMS, projected)
            bias = aligned(terms if bias is None else bias + terms)
        if torch.is_tensor(factor):
            q = (q * factor).type_as(q)
        elif factor is not None:
            scale *= factor
        return Logits(q, scale, bias, content)
