"""Orthogonal random projections, and features computed from them in little memory.

Choromanski et al. 2021, arXiv 2009.14794.
"""

import hashlib
import math
from functools import lru_cache
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention.linear.prefix_sums import dense
from fairseq_posenc.flags.options import Layer


def generator_of(key: str) -> torch.Generator:
    """A random generator on the CPU, seeded by the text *key*."""
    digest = hashlib.sha256(key.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


class DrawnInFloat32:
    """Keeps a module's random buffer float32 under ``.half()``; has to be its first base."""

    #: the name of the buffer
    drawn_buffer = ""

    def _apply(self, fn: Any, *args: Any, **kwargs: object) -> Any:
        """Move the buffer with the model, but keep its type."""
        exact = getattr(self, self.drawn_buffer)
        super()._apply(fn, *args, **kwargs)  # type: ignore[misc]  # PyTorch's
        setattr(self, self.drawn_buffer, exact.to(getattr(self, self.drawn_buffer).device))
        return self


def orthogonal_rows(rows: int, columns: int, key: str) -> Tensor:
    """Random rows with the norms of Gaussian vectors, orthogonal within blocks of D rows.

    Choromanski et al. 2021, section 2.4.  The result is (M, D) for M = *rows* and D = *columns*,
    float64, on the CPU.  *key* seeds the draw; PyTorch's random generators keep their states.

    >>> rows = orthogonal_rows(2, 4, key="any text")
    >>> bool((rows[0] @ rows[1]).abs() < 1e-9)
    True
    """
    generator = generator_of(key)
    blocks = []
    for _ in range(math.ceil(rows / columns)):
        gaussian = torch.randn(columns, columns, dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(gaussian)
        blocks.append((q * r.diagonal().sign()).t())  # these signs make QR unique
    lengths = torch.randn(rows, columns, dtype=torch.float64, generator=generator).norm(dim=1)
    return torch.cat(blocks)[:rows] * lengths.unsqueeze(1)


def scaled_product(x: Tensor, matrix: Tensor, scale: float) -> Tensor:
    """scale · x · matrix for x (…, D) and matrix (D, M), in one operation."""
    ignored = matrix[0, 0]  # beta=0 ignores it
    product = torch.addmm(ignored, x.reshape(-1, x.size(-1)), matrix, beta=0, alpha=scale)
    return product.view(*x.shape[:-1], -1)


def projected(x: Tensor, projection: Tensor) -> Tensor:
    """ω·x / D^¼, (…, M), of x (…, D) and ω (M, D), which have the same type."""
    return scaled_product(x, projection.t(), x.size(-1) ** -0.25)


def squares(x: Tensor) -> Tensor:
    """|x|², (…, 1), of x (…, D)."""
    return x.square().sum(dim=-1, keepdim=True)


class Exponents(NamedTuple):
    """Settings of :class:`PositiveFeatures`."""

    norms: bool  # subtract |x|²/(2·√D)
    per_query_max: bool  # subtract the largest projection of each query
    limit: float  # upper bound of the exponents
    epsilon: float  # ε


class PositiveFeatures(torch.autograd.Function):
    """(exp(ω·x/D^¼ - |x|²/(2·√D) - c) + ε) / √M, with its gradient, computed in place.

    Choromanski et al. 2021, Lemma 1.  The features are the largest tensors of the layer; autograd
    would save four tensors of this size, and take twice as many operations.
    """

    @staticmethod
    def forward(
        ctx: Layer, x: Tensor, stabiliser: Optional[Tensor], projection: Tensor, form: Exponents
    ) -> Tensor:
        """Features (B, H, T, M) of x (B, H, T, D), c (B, H, 1, 1) or None, and ω (M, D)."""
        features, place = projected(x, projection), None
        if form.per_query_max:
            stabiliser, place = features.max(dim=-1, keepdim=True)
        constant = -0.5 * math.log(len(projection))
        if form.norms:
            shift: Any = torch.rsub(squares(x), constant, alpha=0.5 * x.size(-1) ** -0.5)
            shift = shift if stabiliser is None else shift - stabiliser
        else:
            shift = constant if stabiliser is None else constant - stabiliser
        features.add_(shift)
        features = features if form.limit == math.inf else features.clamp_(max=form.limit)
        features.exp_()
        if form.epsilon > 0:
            features.add_(_divided(form, projection))
        ctx.save_for_backward(features, x, projection, place)
        ctx.form = form
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of *x* and of the stabiliser."""
        features, x, projection, place = ctx.saved_tensors
        form = ctx.form
        root, epsilon = x.size(-1) ** -0.25, _divided(form, projection)
        falls = epsilon - features  # derivatives by the exponents, negated to save two operations
        if form.limit != math.inf:  # the gradient of clamped exponents is 0
            falls = F.threshold(falls, (1e-5 - 1) * math.exp(form.limit), 0.0, True)
        falls.mul_(gradient)
        total = falls.sum(dim=-1, keepdim=True)
        of_x = scaled_product(falls, projection, -root)
        if form.norms:
            of_x.addcmul_(x, total, value=root**2)
        if place is not None:  # the gradient of the largest projection, which was subtracted
            of_x.addcmul_(projection[place.squeeze(-1)], total, value=root)
        needed = ctx.needs_input_grad[1]
        return of_x, total.sum(dim=2, keepdim=True) if needed else None, None, None


def positive_pair(both: Tensor, projection: Tensor, epsilon: float, limit: float) -> Tensor:
    """The features (2, B, H, 1, M) of :class:`PositiveFeatures` for the query and key of a token.

    *both* (2, B, H, 1, D), dense, has q before k, and *projection* is ω (M, D).  For the query, c
    is the maximum of ω·q/D^¼; for the key, c is 0, and exponents are clamped to *limit*.  The
    features have no gradient.
    """
    count, size = projection.shape
    features, rows = projected(both, projection), both.view(-1, 1, size)
    constant = _number(-0.5 * math.log(count), both.dtype, both.device)
    # constant - |x|²/(2·√D)
    shift = torch.baddbmm(constant, rows, rows.transpose(1, 2), alpha=-0.5 * size**-0.5)
    shift = shift.view(*both.shape[:-1], 1)
    shift[0].sub_(features[0].amax(dim=-1, keepdim=True))
    features.add_(shift)
    features[1].clamp_(max=limit)
    return features.exp_().add_(epsilon * count**-0.5)


@lru_cache(maxsize=None)
def _number(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A cached tensor (1, 1, 1), so that a constant is copied to a GPU only once."""
    return torch.full((1, 1, 1), value, dtype=dtype, device=device)


def _divided(form: Exponents, projection: Tensor) -> float:
    """ε / √M."""
    return form.epsilon * len(projection) ** -0.5


class LargestExponent(torch.autograd.Function):
    """The maximum of ω·k/D^¼, or of ω·k/D^¼ - |k|²/(2·√D), over keys and ω, with its gradient.

    Only the key at the maximum has a gradient other than 0.
    """

    @staticmethod
    def forward(
        ctx: Layer, k: Tensor, hidden: Optional[Tensor], projection: Tensor, norms: bool, size: int
    ) -> Tensor:
        """The maximum, (B, H, 1, 1), -inf if all keys are hidden, in the type of *projection*.

        *k* are keys (B, S, H, D), *hidden* (B, S, 1, 1) is True at padding, and *projection* is ω
        (M, D).  If *norms*, |k|²/(2·√D) is subtracted.  *size* keys are projected at a time.
        """
        best: Optional[List[Tensor]] = None
        for start in range(0, k.size(1), size):
            part = dense(k[:, start : start + size].transpose(1, 2), projection.dtype)
            tops, features = projected(part, projection).max(dim=-1, keepdim=True)  # (B, H, ·, 1)
            if norms:
                tops = torch.sub(tops, squares(part), alpha=0.5 * k.size(-1) ** -0.5)
            if hidden is not None:
                padding = hidden[:, start : start + size].transpose(1, 2)
                tops = tops.masked_fill(padding, float("-inf"))
            top, place = tops.max(dim=2, keepdim=True)
            key = part.gather(2, place.expand(-1, -1, -1, k.size(-1)))  # (B, H, 1, D)
            largest = [top, place, features.gather(2, place), key]
            if best is None:
                best = largest
            else:
                largest[1] = place + start
                better = top > best[0]
                best = [torch.where(better, new, old) for new, old in zip(largest, best)]
        assert best is not None
        ctx.save_for_backward(*best[1:], projection)
        ctx.norms, ctx.shape, ctx.dtype = norms, k.shape, k.dtype
        return best[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradient of the keys."""
        place, feature, key, projection = ctx.saved_tensors
        root = key.size(-1) ** -0.25
        rows = projection[feature.squeeze(-1)] * root  # (B, H, 1, D)
        rows = torch.sub(rows, key, alpha=root**2) if ctx.norms else rows
        result = key.new_zeros(ctx.shape, dtype=ctx.dtype)  # (B, S, H, D)
        rows = (rows * gradient).to(ctx.dtype)
        result.transpose(1, 2).scatter_(2, place.expand_as(key), rows)
        return result, None, None, None, None
