"""The content-dependent terms of a layer, with a cache for what decoding steps share."""

from typing import Any, Optional

from torch import Tensor

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.encodings.base import Content
from fairseq_posenc.flags.options import Layer


def content_logits(
    layer: Layer,
    content: Content,
    distance_vectors: Optional[Tensor],
    incremental_state: IncrementalState,
) -> Tensor:
    """Scaled sum of the content-dependent terms of *layer*, (B, H, T, S).

    Projected distance vectors are cached between decoding steps.  All hypotheses share them, so
    beam search need not reorder them.

    Args:
        layer: the attention.
        content: inputs of the terms.
        distance_vectors: (N, L, H·D) for N terms and L distances, or None.
        incremental_state: fairseq's cache, or None.
    """
    projected: Any = layer.get_incremental_state(incremental_state, "position_terms") or {}
    logits = layer.position_terms(content, distance_vectors, projected)
    if incremental_state is not None:
        layer.set_incremental_state(incremental_state, "position_terms", projected)
    return logits
