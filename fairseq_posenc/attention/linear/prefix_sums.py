"""Linear attention on features: queries attend to sums over keys instead of to single keys.

Katharopoulos et al. 2020, arXiv 2006.16236, and with rotary RoFormer Eq. 11:

    out_m = Σ_n (R_m φ(q_m))·(R_n ϕ(k_n)) v_n / Σ_n φ(q_m)·ϕ(k_n)
          = Σ_n v_n (R_n ϕ(k_n))ᵀ · (R_m φ(q_m)) / φ(q_m)ᵀ · Σ_n ϕ(k_n)

Only the numerator is rotated: its weights may be negative, while the denominator stays a sum of
non-negative terms.  M is the number of features.  All is computed in float32 or wider.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.blocks import chunked
from fairseq_posenc.flags.options import Layer

#: Rotates features (B, H, T, M) of queries or of keys, R_m or R_n above.
Rotation = Callable[[Tensor], Tensor]

#: Tokens per chunk; weights are computed within a chunk, prefix sums between chunks.
CHUNK = 64


class State(NamedTuple):
    """Sums over the keys and values so far.

    Args:
        products: Σ_n v_n (R_n ϕ(k_n))ᵀ, (B, H, D, M).
        sums: Σ_n ϕ(k_n), (B, H, M).
    """

    products: Tensor
    sums: Tensor

    def plus(self, other: "State") -> "State":
        """The state after the keys of both."""
        return State(self.products + other.products, self.sums + other.sums)


def empty_state(v: Tensor, features: int) -> State:
    """The state before the first token.

    Args:
        v: values (B, H, T, D), for their sizes and type.
        features: M.
    """
    b, h, _, d = v.shape
    return State(v.new_zeros(b, h, d, features), v.new_zeros(b, h, features))


def identity(x: Tensor) -> Tensor:
    """No rotation."""
    return x


def summarize_keys(k: Tensor, v: Tensor, rotate: Rotation = identity) -> State:
    """The state of some keys.

    A query that matches one of two keys by its features attends to that key alone:

    >>> k, v = torch.eye(2).view(1, 1, 2, 2), torch.tensor([[3.0], [5.0]]).view(1, 1, 2, 1)
    >>> state = summarize_keys(k, v)
    >>> q = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).view(1, 1, 2, 2)
    >>> attend_to_state(q, state, epsilon=1e-9).flatten()
    tensor([3., 4.])

    Args:
        k: ϕ of the keys, (B, H, S, M), not negative, 0 at hidden keys.
        v: values (B, H, S, D).
        rotate: rotates the keys in the numerator.
    """
    # this order keeps the gradient in the layout of k
    return State(torch.matmul(v.transpose(-2, -1), rotate(k)), k.sum(dim=2))


def attend_to_state(
    q: Tensor, state: State, epsilon: float, per_feature: bool = False, rotate: Rotation = identity
) -> Tensor:
    """Attention to all keys of a state (RoFormer Eq. 10, and Eq. 11 with *rotate*).

    Args:
        q: φ of the queries, (B, H, T, M), not negative.
        state: the state of the keys.
        epsilon: lower bound on denominators.
        per_feature: divide each feature of the keys by its own sum over the keys a query sees.
        rotate: rotates the queries in the numerator.

    Returns:
        (B, H, T, D), zeros if there are no keys.
    """
    seen, products = state.sums.unsqueeze(2), state.products.transpose(-2, -1)
    if per_feature:
        return torch.matmul(rotate(q / seen.clamp(min=epsilon)), products)
    return torch.matmul(rotate(q), products) / _denominators(q, seen, epsilon)


def attend_causally(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Optional[State],
    epsilon: float,
    per_feature: bool = False,
    rotate: Rotation = identity,
    last: bool = False,
) -> Tuple[Tensor, Optional[State]]:
    """Causal attention: each query attends to keys up to its own position and to *state*.

    Args:
        q: φ of the queries, (B, H, T, M).
        k: ϕ of the keys, (B, H, T, M).
        v: values (B, H, T, D).
        state: the state of the keys before these, or None if there are none.
        epsilon: as for :func:`attend_to_state`; so is *per_feature*.
        rotate: rotates queries and keys in the numerator.
        last: no state will be needed.

    Returns:
        (B, H, T, D), zeros for fully masked rows; and the state with these keys included, or None
        if *last*.
    """
    if q.size(2) == 1:  # a single query sees all keys
        own = summarize_keys(k, v, rotate)
        state = own if state is None else state.plus(own)
        return attend_to_state(q, state, epsilon, per_feature, rotate), state
    seen = k.cumsum(dim=2)  # (B, H, T, M)
    seen = seen if state is None else seen + state.sums.unsqueeze(2)
    keys = (rotate(k), v, None if state is None else state.products)
    if per_feature:
        out, products = products_before(rotate(q / seen.clamp(min=epsilon)), *keys, last)
    else:
        out, products = products_before(rotate(q), *keys, last)
        out = out / _denominators(q, seen, epsilon)
    return out, None if products is None else State(products, seen[:, :, -1])


def products_before(
    q: Tensor, k: Tensor, v: Tensor, start: Optional[Tensor], last: bool = False
) -> Tuple[Tensor, Optional[Tensor]]:
    """(start + Σ_n v_n k_nᵀ) · q_m over n ≤ m, (B, H, T, D), and the sum over all n, (B, H, D, M).

    The second result is None if *last*.  One (D, M) tensor is stored per chunk instead of per
    token, to save memory.

    Args:
        q: (B, H, T, M).
        k: (B, H, T, M).
        v: (B, H, T, D).
        start: (B, H, D, M), or None for 0.
        last: no sum over all n will be needed.
    """
    length = q.size(2)
    if start is None:
        if length <= CHUNK:  # no sums between chunks
            weights = torch.matmul(q, k.transpose(-2, -1)).tril()
            out = torch.matmul(weights, v)
            return out, None if last else torch.matmul(v.transpose(-2, -1), k)
        start = empty_state(v, k.size(-1)).products
    q, k, v = (chunked(x, min(CHUNK, length)) for x in (q, k, v))
    sums = torch.matmul(v.transpose(-2, -1), k)  # (B, H, N, D, M)
    before = torch.cat((start.unsqueeze(2), sums[:, :, :-1]), dim=2).cumsum(dim=2)
    weights = torch.matmul(q, k.transpose(-2, -1)).tril()  # (B, H, N, L, L)
    out = torch.matmul(weights, v) + torch.matmul(q, before.transpose(-2, -1))
    total = None if last else before[:, :, -1] + sums[:, :, -1]
    return out.flatten(2, 3)[:, :, :length], total


def _denominators(q: Tensor, seen: Tensor, epsilon: float) -> Tensor:
    """φ(q_m)ᵀ·Σ_n ϕ(k_n), (B, H, T, 1); the sums *seen* are (B, H, 1|T, M)."""
    sums = (q * seen).sum(dim=-1, keepdim=True)
    return F.threshold(sums, epsilon, epsilon)  # its gradient is one operation, that of clamp three


class TransposedCast(torch.autograd.Function):
    """(B, T, H, D) to (B, H, T, D) or back, dense and in another type, with one copy.

    Its gradient, too, takes one copy, where autograd casts first and then makes it dense.
    """

    @staticmethod
    def forward(ctx: Layer, x: Tensor, dtype: torch.dtype) -> Tensor:
        """*x* with its second and third dimension exchanged, in *dtype*."""
        ctx.dtype = x.dtype
        return _dense(x.transpose(1, 2), dtype)

    @staticmethod
    def backward(ctx: Layer, *gradients: Tensor) -> Tuple[Tensor, None]:
        """The gradient in the type and layout of the input."""
        return _dense(gradients[0].transpose(1, 2), ctx.dtype), None


def _dense(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype, memory_format=torch.contiguous_format).contiguous()


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, H, T, D) as (B, T, H, D) in *dtype*, clamped to the range of half precision.

    bfloat16 has that of float32.  Weights of rotated features do not sum to one, and are large
    where the denominator is small.
    """
    if dtype == torch.float16:
        most = torch.finfo(dtype).max
        x = x.clamp(-most, most)
    return TransposedCast.apply(x, dtype)
