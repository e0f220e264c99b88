"""One decoding step of linear attention, in few operations.

RoFormer Eq. 11 for the last query m, whose key counts, too (see prefix_sums.py):

    Σ_{n≤m} v_n (R_n ϕ(k_n))ᵀ = Σ_{n<m} v_n (R_n ϕ(k_n))ᵀ + v_m (R_m ϕ(k_m))ᵀ

On a GPU, starting an operation on one token takes the host longer than running it takes the GPU, so
each operation serves the query and the key at once.
"""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import KeySums
from fairseq_posenc.attention.linear.recomputed import Segment
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, view_as_stack


def attend_to_next(
    token: Segment, features: FeatureMap, rotary: Any, state: Optional[KeySums], epsilon: float
) -> Tuple[Tensor, KeySums]:
    """The output (B, H, 1, D) of one token, in float32 or wider, and the state after it."""
    parts, table, hidden, kept = (token.q, token.k, token.v), token.table, token.hidden, token.kept
    whole = view_as_stack(parts)
    whole = torch.stack(parts) if whole is None else whole
    # (3, B, 1, H, D) -> (3, B, H, 1, D), dense
    whole = whole.transpose(2, 3).to(AT_LEAST_FLOAT32[token.v.dtype]).contiguous()
    q, k, v = whole.unbind()
    q, k = features.of_token(q, k, token.positions)  # (B, H, 1, M)
    k = k if hidden is None else k.masked_fill(hidden, 0.0)
    v = v if kept is None else v * kept.transpose(1, 2)
    sums = k.squeeze(2) if state is None else state.sums + k.squeeze(2)
    if features.per_feature:
        q = q / sums.unsqueeze(2).clamp(min=epsilon)
    rotated_q, rotated_k = q, k
    if table is not None:
        heads_last = (x.transpose(1, 2) for x in (q, k, k))
        rotated_q, rotated_k = (x.transpose(1, 2) for x in rotary(*heads_last, table)[:2])
    v = v.transpose(-2, -1)  # (B, H, D, 1)
    products = v * rotated_k if state is None else torch.addcmul(state.products, v, rotated_k)
    out = torch.matmul(rotated_q, products.transpose(-2, -1))
    if not features.per_feature:
        out = out / F.threshold(torch.matmul(q, sums.unsqueeze(-1)), epsilon, epsilon)
    return out, KeySums(products, sums)
