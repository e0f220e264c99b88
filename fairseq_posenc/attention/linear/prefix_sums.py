"""Linear attention on features: queries attend to sums over keys instead of to single keys.

Katharopoulos et al. 2020, arXiv 2006.16236, and, with rotary, RoFormer Eq. 11:

    out_m = Σ_n (R_m φ(q_m))·(R_n ϕ(k_n)) v_n / Σ_n φ(q_m)·ϕ(k_n)
          = Σ_n v_n (R_n ϕ(k_n))ᵀ · (R_m φ(q_m)) / (φ(q_m)ᵀ · Σ_n ϕ(k_n))

Only the numerator is rotated: its weights may be negative, while the denominator stays a sum of
non-negative terms.  M is the number of features.  Features, and sums over chunks of keys, are
computed in float32 or wider.  Features are multiplied in float32 or wider, too, except for large
batches of bfloat16 models on a GPU (:func:`feature_dtype`).
"""

from typing import Callable, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention.blocks import chunked
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.flags.options import Layer

#: A function that rotates features (B, H, T, M): R_m or R_n above.
Rotation = Callable[[Tensor], Tensor]

#: Smallest number of elements in queries for which a GPU multiplies features in bfloat16, 2,048
#: tokens of 512 channels: with fewer, the GPU waits for its host, and casts would slow the host.
NARROW_FROM = 1_048_576

#: Tokens per chunk; weights are computed within a chunk, prefix sums between chunks.
CHUNK = 64


class KeySums(NamedTuple):
    """Sums over the keys and values so far."""

    products: Tensor  # Σ_n v_n (R_n ϕ(k_n))ᵀ, (B, H, D, M)
    sums: Tensor  # Σ_n ϕ(k_n), (B, H, M)

    def plus(self, other: "KeySums") -> "KeySums":
        """The sums over the keys of *self* and *other*."""
        return KeySums(self.products + other.products, self.sums + other.sums)


def identity(x: Tensor) -> Tensor:
    """No rotation."""
    return x


def summarize_keys(k: Tensor, v: Tensor, rotate: Rotation = identity) -> KeySums:
    """Sums over keys; features *k* (B, H, S, M) are 0 for masked keys; values *v* (B, H, S, D).

    A query with the features of one of two keys attends to that key alone:

    >>> k, v = torch.eye(2).view(1, 1, 2, 2), torch.tensor([[3.0], [5.0]]).view(1, 1, 2, 1)
    >>> state = summarize_keys(k, v)
    >>> q = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).view(1, 1, 2, 2)
    >>> attend_to_state(q, state, epsilon=1e-9).flatten()
    tensor([3., 4.])
    """
    return KeySums(_summed(v, rotate(k)), k.sum(dim=2, dtype=AT_LEAST_FLOAT32[k.dtype]))


def _summed(v: Tensor, k: Tensor) -> Tensor:
    """Σ_n v_n k_nᵀ, (…, D, M), of *v* (…, L, D) and *k* (…, L, M), in float32 or wider."""
    # this order keeps the gradient in the layout of k
    return torch.matmul(v.transpose(-2, -1), k).to(AT_LEAST_FLOAT32[k.dtype])


def attend_to_state(
    q: Tensor,
    state: KeySums,
    epsilon: float,
    per_feature: bool = False,
    rotate: Rotation = identity,
) -> Tensor:
    """Attention to all keys of *state* (RoFormer Eq. 10, and Eq. 11 with *rotate*).

    *q* (B, H, T, M) are non-negative features of queries; the result is (B, H, T, D), and 0 if
    there are no keys.  Denominators are at least *epsilon*; *per_feature* divides each feature of
    the keys by its sum over the keys that a query sees.
    """
    seen, products = (x.to(q.dtype) for x in (state.sums.unsqueeze(2), state.products))
    products = products.transpose(-2, -1)
    if per_feature:
        return torch.matmul(rotate(q / seen.clamp(min=epsilon)), products)
    denominators = torch.matmul(q, seen.transpose(-2, -1))  # (B, H, T, 1)
    return torch.matmul(rotate(q), products) / F.threshold(denominators, epsilon, epsilon)


def attend_causally(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Optional[KeySums],
    epsilon: float,
    per_feature: bool = False,
    rotate: Rotation = identity,
    last: bool = False,
) -> Tuple[Tensor, Optional[KeySums]]:
    """Causal attention: each query attends to keys up to its own position and to *state*.

    *q* and *k* are features (B, H, T, M), *v* are values (B, H, T, D), and *state* has sums over
    earlier keys.  The other arguments are those of :func:`attend_to_state`.

    Returns:
        outputs (B, H, T, D), 0 for fully masked rows; and the state after *k*, or None if *last*.
    """
    ones, sums = torch.ones_like(v[..., :1]), None if state is None else state.sums.unsqueeze(2)
    start = None if state is None else state.products
    if per_feature:
        seen = k.cumsum(dim=2, dtype=AT_LEAST_FLOAT32[k.dtype])  # (B, H, T, M)
        seen = seen if sums is None else seen + sums
        q = rotate((q / seen.clamp(min=epsilon)).to(q.dtype))
        out, products = products_before(q, rotate(k), v, start, last)
        return out, None if products is None else KeySums(products, seen[:, :, -1])
    if rotate is identity:  # numerator and denominator share the products of features
        if state is not None:
            start = torch.cat((state.products, state.sums.unsqueeze(2)), dim=2)
        out, total = products_before(q, k, torch.cat((v, ones), dim=-1), start, last)
        out, seen = out.split((v.size(-1), 1), dim=-1)
        products, sums = (None, None) if total is None else total.split((v.size(-1), 1), dim=2)
    else:
        out, products = products_before(rotate(q), rotate(k), v, start, last)
        seen, sums = products_before(q, k, ones, sums, last)
    # the gradient of threshold takes one operation, the gradient of clamp three
    out = out / F.threshold(seen, epsilon, epsilon)
    return out, None if products is None or sums is None else KeySums(products, sums.squeeze(2))


def products_before(
    q: Tensor, k: Tensor, v: Tensor, start: Optional[Tensor], last: bool = False
) -> Tuple[Tensor, Optional[Tensor]]:
    """(start + Σ_{n≤m} v_n k_nᵀ) q_m, (B, H, T, D), and the sum over all n, (B, H, D, M).

    The second result is None if *last*.  Only q, k, v and start are saved for the backward pass.

    *q* and *k* are (B, H, T, M), *v* (B, H, T, D), and *start* (B, H, D, M), or None for 0.
    """
    return ProductsBefore.apply(q, k, v, start, min(CHUNK, q.size(2)), last)


class ProductsBefore(torch.autograd.Function):
    """:func:`products_before` with its gradient, as matrix products within chunks of tokens.

    Each chunk has a (D, M) tensor of prefix sums.  Autograd would save all these tensors, and take
    twice as many operations.
    """

    @staticmethod
    def forward(
        ctx: Layer, q: Tensor, k: Tensor, v: Tensor, start: Optional[Tensor], size: int, last: bool
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """The results of :func:`products_before`, from chunks of *size* tokens."""
        ctx.save_for_backward(q, k, v, start)
        ctx.size = size
        length = q.size(2)
        q, k, v = (chunked(x, size) for x in (q, k, v))  # (B, H, N, L, …)
        before = _sums_of_others(v, k, start, earlier=True)
        weights = torch.matmul(q, k.transpose(-2, -1)).tril_()
        out = _sum_of_products(weights, v, q, _transposed(before))
        total = None if last else _with_chunk(before, v, k, -1)
        return out.flatten(2, 3)[:, :, :length], total

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Layer, gradient: Tensor, of_total: Optional[Tensor]
    ) -> Tuple[Optional[Tensor], ...]:
        """Gradients of q, k, v and start."""
        q, k, v, start = ctx.saved_tensors
        length, needed = q.size(2), ctx.needs_input_grad
        q, k, v, g = (chunked(x, ctx.size) for x in (q, k, v, gradient))
        gradients: List[Optional[Tensor]] = [None] * 4
        if needed[0] or needed[1]:
            pairs = torch.matmul(g, v.transpose(-2, -1)).tril_()  # gradient of the weights
        if needed[0]:
            gradients[0] = _sum_of_products(pairs, k, g, _sums_of_others(v, k, start, earlier=True))
        after = _sums_of_others(g, q, of_total, earlier=False)
        if needed[1]:
            gradients[1] = _sum_of_products(pairs.transpose(-2, -1), q, v, after)
        if needed[2]:
            weights = torch.matmul(q, k.transpose(-2, -1)).tril_()
            gradients[2] = _sum_of_products(weights.transpose(-2, -1), g, k, _transposed(after))
        cut = [x if x is None else x.flatten(2, 3)[:, :, :length] for x in gradients[:3]]
        return (*cut, _with_chunk(after, g, q, 0) if needed[3] else None, None, None)


def _sums_of_others(
    v: Tensor, k: Tensor, start: Optional[Tensor], earlier: bool
) -> Optional[Tensor]:
    """For each chunk, start + Σ_n v_n k_nᵀ over the *earlier* (or later) chunks; None if 0.

    Shapes: v (B, H, N, L, D), k (B, H, N, L, M), start (B, H, D, M), result (B, H, N, D, M).
    """
    number, start = k.size(2), None if start is None else start.unsqueeze(2)
    if number == 1:
        return start
    of_chunks = _summed(v, k)
    ones = of_chunks.new_ones(number, number)
    ones = ones.tril_(-1) if earlier else ones.triu_(1)
    sums = torch.matmul(ones, of_chunks.flatten(3)).view_as(of_chunks)
    return sums if start is None else sums.add_(start)


def _with_chunk(sums: Optional[Tensor], v: Tensor, k: Tensor, index: int) -> Tensor:
    """The *sums* at chunk *index* plus Σ_n v_n k_nᵀ over that chunk, (B, H, D, M)."""
    of_chunk = _summed(v[:, :, index], k[:, :, index])
    return of_chunk if sums is None else of_chunk.add_(sums[:, :, index])


def _transposed(x: Optional[Tensor]) -> Optional[Tensor]:
    return None if x is None else x.transpose(-2, -1)


def _sum_of_products(a: Tensor, b: Tensor, c: Tensor, d: Optional[Tensor]) -> Tensor:
    """a·b + c·d of tensors (B, H, N, ·, ·); None for *d* means 0."""
    product = torch.matmul(a, b)
    if d is not None:
        product.flatten(0, 2).baddbmm_(c.flatten(0, 2), d.flatten(0, 2).to(c.dtype))
    return product


class TransposedCast(torch.autograd.Function):
    """Exchange the dimensions T and H of (B, T, H, D), and cast, in one dense copy.

    The backward pass takes one copy, too; autograd would take two.
    """

    @staticmethod
    def forward(ctx: Layer, x: Tensor, dtype: torch.dtype) -> Tensor:
        """*x* with its second and third dimensions exchanged, in *dtype*."""
        ctx.dtype = x.dtype
        return dense(x.transpose(1, 2), dtype)

    @staticmethod
    def backward(ctx: Layer, *gradients: Tensor) -> Tuple[Tensor, None]:
        """The gradient in the type and layout of the input."""
        return dense(gradients[0].transpose(1, 2), ctx.dtype), None


def dense(x: Tensor, dtype: torch.dtype) -> Tensor:
    """*x* as a dense tensor of type *dtype*, in at most one copy."""
    return x.to(dtype, memory_format=torch.contiguous_format).contiguous()


def widen(x: Tensor) -> Tensor:
    """*x* (B, T, H, D) as (B, H, T, D), dense, in float32 or wider."""
    return TransposedCast.apply(x, AT_LEAST_FLOAT32[x.dtype])


def feature_dtype(x: Tensor) -> torch.dtype:
    """The type in which features of *x*, queries or keys (B, T, H, D), are multiplied.

    A GPU multiplies bfloat16 much faster than float32.  float16 is not used: in causal attention,
    no maximum over all keys scales their features, which therefore exceed the range of float16.
    """
    if x.dtype is torch.bfloat16 and x.is_cuda and x.numel() >= NARROW_FROM:
        return x.dtype
    return AT_LEAST_FLOAT32[x.dtype]


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """*x* (B, H, T, D) as (B, T, H, D) in *dtype*, clamped if that is float16.

    Weights of rotated features do not sum to one, and are large where the denominator is small, so
    that outputs can exceed the range of float16, but not that of bfloat16.
    """
    if dtype == torch.float16:
        most = torch.finfo(dtype).max
        x = x.clamp(-most, most)
    return TransposedCast.apply(x, dtype)
