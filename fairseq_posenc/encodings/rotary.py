"""Rotary position embedding (RoPE).

RoFormer, Su et al., Neurocomputing 568, 2024 (arXiv 2104.09864 numbers Eq. 4, 7, 8 and 26 as 12,
15, 16 and 34).  Queries and keys are rotated by an angle that grows with their position, so that
their product depends on the distance only (Eq. 8):

    (R_m q)·(R_n k) = q · R_{n-m} k,    R_m = diag of 2x2 rotations by m·θ_i   (Eq. 7)
    θ_i = base^{-2(i-1)/d},  i = 1 … d/2,  base = 10000

A 2x2 rotation is a complex multiplication (Eq. 4): a pair of channels is one complex number, which
is multiplied by e^{i m θ}.  Exported and compiled graphs, which lack complex operators, use real
operators (Eq. 26): (a, b) at an angle φ becomes (a cos φ - b sin φ, a sin φ + b cos φ).
"""

import math
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, view_as_stack
from fairseq_posenc.encodings.base import QKVTransform, Rotation, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.encodings.rotary_frequencies import (
    TEMPERED,
    ScalingFlags,
    check_scaling,
    frequencies,
    read_scaling,
    warn_of_length,
)
from fairseq_posenc.flags.by_layer import numbers_by_layer
from fairseq_posenc.flags.options import Layer, Options
from fairseq_posenc.flags.settings import setting

#: the channels that form a pair: (1, 2), (3, 4), …; or (i, i + d/2)
PAIRINGS = ("interleaved", "half")


@dataclass
class RotaryFlags(ScalingFlags):
    """Flags of the rotary encoding."""

    rotary_base: Any = setting(
        10000.0,
        "base of the rotary frequencies θ_i = base^(-2(i-1)/d), or a pattern of bases over the "
        "layers such as 160000*2,10000",
        above=1,
        at_most=1e12,
        by_layer=True,
    )
    rotary_fraction: Optional[float] = setting(
        1.0,
        "fraction of each head's channels that is rotated, above 0 and up to 1, rounded to whole "
        "pairs; the other channels carry no position",
        above=0,
        at_most=1,
    )
    rotary_kept: Optional[float] = setting(
        1.0,
        "share p of the rotary frequencies that is kept, above 0 and up to 1; the lowest are "
        "dropped, so that their pairs of channels are not rotated (p-RoPE)",
        above=0,
        at_most=1,
    )
    rotary_pairing: Optional[str] = setting(
        "interleaved",
        "which channels form a pair: interleaved (1,2)(3,4)… as in RoFormer Eq. 26, or half "
        "(i, i+d/2) as in GPT-NeoX and Llama",
        choices=PAIRINGS,
    )
    rotary_value: Optional[bool] = setting(
        False,
        "also rotate the values, as some released models do; the encoding is then no longer purely "
        "relative",
    )


def pairs_of(x: Tensor, pairing: str) -> Tensor:
    """View *x* (…, d), whose channels are adjacent in memory, as pairs (…, d/2, 2).

    >>> [pairs_of(torch.arange(4), pairing).tolist() for pairing in PAIRINGS]
    [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    """
    if pairing == "half":
        return x.view(*x.shape[:-1], 2, -1).transpose(-1, -2)
    return x.view(*x.shape[:-1], -1, 2)


class Multiply(torch.autograd.Function):
    """Products of pairs with a complex table, in float32 or wider.

    The gradient is one product with the conjugate table.  Autograd would conjugate the table twice,
    for queries and for keys, and in half precision it would cast queries and keys one by one.
    """

    @staticmethod
    def forward(
        ctx: Optional[Layer], table: Tensor, pairing: str, *tensors: Tensor
    ) -> Tuple[Tensor, ...]:
        """*tensors* (B, T, H, D), with the pairs of the first d channels multiplied by *table*.

        The *table* is (1|B, T, 1, d/2), complex; *tensors* and products have one dtype.  *ctx*
        is None if the backward pass calls this method.
        """
        if ctx is not None:
            ctx.pairing = pairing
            if any(ctx.needs_input_grad):
                ctx.save_for_backward(table.conj().resolve_conj())
        heads, first, dim = tensors, tensors[0], 2 * table.size(-1)
        whole = dim == first.size(-1)
        if not whole:
            heads = tuple(x[..., :dim] for x in tensors)
        wide = AT_LEAST_FLOAT32[first.dtype]
        where_they_are = wide is first.dtype and pairing == "interleaved"
        # on a GPU, a small operation takes longer to start than to run, so queries and keys that
        # come from one product are multiplied together
        joint = view_as_stack(heads) if first.is_cuda else None
        apart = joint is None and (where_they_are or len({x.shape for x in heads}) > 1)
        if joint is None and not apart:
            joint = torch.stack(list(heads))
        products: Any = []
        for x in heads if joint is None else (joint,):
            if where_they_are:
                odd: Any = x.storage_offset()
                for step in x.stride()[:-1]:
                    odd |= step
                if x.stride(-1) != 1 or odd % 2:  # cannot be viewed as complex numbers
                    x = x.clone(memory_format=torch.contiguous_format)
                numbers = x.view(*x.shape[:-1], -1, 2)
            else:
                # not contiguous(), which would keep odd strides of dimensions of size 1
                numbers, form = pairs_of(x, pairing), torch.contiguous_format
                if numbers.dtype is wide:
                    numbers = numbers.clone(memory_format=form)
                numbers = numbers.to(wide, memory_format=form)
            numbers = torch.view_as_real(torch.view_as_complex(numbers) * table)
            numbers = numbers.transpose(-1, -2) if pairing == "half" else numbers
            numbers = numbers.to(first.dtype, memory_format=torch.contiguous_format)
            products.append(numbers.flatten(-2))
        products = products if joint is None else products[0].unbind()
        return tuple(products) if whole else with_rest(products, tensors)

    @staticmethod
    def backward(ctx: Layer, *gradients: Tensor) -> Tuple[Any, ...]:
        """Products with the conjugates."""
        (conjugates,) = ctx.saved_tensors
        return (None, None, *Multiply.forward(None, conjugates, ctx.pairing, *gradients))


def multiply_real(table: Tensor, pairing: str, *tensors: Tensor) -> Tuple[Tensor, ...]:
    """Like :class:`Multiply`, but *table* is real, cosines before sines, (1|B, T, 1, d)."""
    cos, sin = table.chunk(2, dim=-1)
    products, dim = [], table.size(-1)
    for x in tensors:
        heads = x if dim == x.size(-1) else x[..., :dim]
        wide = heads.to(AT_LEAST_FLOAT32[x.dtype])
        a, b = wide.chunk(2, dim=-1) if pairing == "half" else (wide[..., 0::2], wide[..., 1::2])
        parts = (a * cos - b * sin, a * sin + b * cos)
        product = torch.cat(parts, -1) if pairing == "half" else torch.stack(parts, -1).flatten(-2)
        products.append(product.to(x.dtype))
    return with_rest(products, tensors)


def with_rest(products: Sequence[Tensor], tensors: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    """The *products* (B, T, H, d), followed by the other channels of *tensors* (B, T, H, D)."""
    dim = products[0].size(-1)
    if dim == tensors[0].size(-1):
        return tuple(products)
    return tuple(torch.cat((product, x[..., dim:]), -1) for product, x in zip(products, tensors))


def rotated(options: Options, head_dim: int) -> Tuple[int, int]:
    """d, the number of rotated channels per head, and the number of pairs with a frequency."""
    dim = 2 * round(head_dim * float(options.rotary_fraction) / 2)  # whole pairs
    # rounded down as in the code of p-RoPE; 1e-9, because 0.7 · 10 is below 7 in floats
    return dim, int(float(options.rotary_kept) * dim / 2 + 1e-9)


@register_encoding(
    "rotary",
    paper="Su et al. 2021, arXiv 2104.09864",
    summary="queries and keys rotated by an angle proportional to their position (RoFormer)",
    flags=RotaryFlags,
)
class Rotary(QKVTransform):
    """Rotates the leading channels of every head (RoFormer Eq. 4 and 7).

    The length in training is ``--rotary-original-length``, by default the stack's longest sequence.
    """

    applies_to_features = True  # rotations keep norms
    named = "rotary"  # name in messages
    #: True if layers are compiled; compiled graphs have no operators on complex numbers
    compiled = False

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        #: the bases of the layers; the list repeats over the layers
        self.bases = numbers_by_layer("rotary_base", options.rotary_base)
        self.pairing = str(options.rotary_pairing)
        self.rotate_values = bool(options.rotary_value)
        self.dim, self.kept = rotated(options, stack.head_dim)
        self.scaling = read_scaling(options, stack.max_positions)
        self.temperature, self.reach = self.scaling.temperature, self.scaling.reach

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse odd head sizes, fractions that leave no pair, and scaling without effect."""
        stack.refuse_odd_heads(cls.named)
        size = f"head size {stack.head_dim} of the {stack.side}"
        dim, kept = rotated(options, stack.head_dim)
        if dim == 0:
            raise UsageError(
                f"--rotary-fraction {options.rotary_fraction:g}: leaves no pair of channels to "
                f"rotate with {size}; give {2 / stack.head_dim:g} for one pair, or more"
            )
        if kept == 0:
            least = math.ceil(20_000 / dim) / 10_000  # rounded up: a smaller share keeps none
            raise UsageError(
                f"--rotary-kept {options.rotary_kept:g}: keeps none of the {dim // 2} frequencies "
                f"of {size}; the smallest that works is {least:g}; to rotate nothing, give "
                "--position-encoding none"
            )
        check_scaling(read_scaling(options, stack.max_positions), dim)

    @classmethod
    def check_features(cls, options: Options) -> Optional[str]:
        """``--rotary-value``, or a ``--rotary-scaling`` with a temperature, and why; or None."""
        if options.rotary_value:
            return "--rotary-value: only features of queries and keys are rotated, not values"
        if options.rotary_scaling in TEMPERED:
            return (
                f"--rotary-scaling {options.rotary_scaling}: its temperature scales logits, which "
                "linear attention does not compute"
            )
        return None

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """``--rotary-value``, if enabled."""
        return "--rotary-value" if options.rotary_value else None

    def set_trained_length(self, length: int) -> None:
        """Set the length in training, in tokens, unless frequencies are scaled."""
        if self.scaling.rule == "none":
            self.scaling, self.reach = self.scaling._replace(length=length), length

    def exceeded(self, length: int) -> None:
        """Warn, once per run, of sequences that are longer than those in training."""
        if not self.training:
            warn_of_length(self.scaling)

    def variant(self, layer: int) -> float:
        """The base in *layer*: layers with equal bases share a table."""
        return self.bases[layer % len(self.bases)]

    def rotation(self, layer: int) -> Optional[Rotation]:
        """The rotation in *layer*; a subclass that also scales queries and keys returns None."""
        base = self.variant(layer)
        theta = frequencies(self.dim, base, None, self.scaling, self.kept)
        return Rotation(theta, base, self.pairing, self.temperature)

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """e^{i m θ}, times the temperature, for every position m and frequency θ.

        Angles are float64: in float32, an angle of 4,096 radians is already off by 2e-4, in half
        precision by full rotations.  The result is complex64, which ``.half()`` does not cast.

        Returns:
            (1|B, T, 1, d/2), complex64; or, if layers are compiled or traced, cosines before sines,
            (1|B, T, 1, d), float32.
        """
        base = self.bases[layer % len(self.bases)]
        theta = frequencies(self.dim, base, positions.device, self.scaling, self.kept)
        angles = positions.to(torch.float64).unsqueeze(-1) * theta  # (1|B, T, d/2)
        if self.compiled or torch.jit.is_tracing():
            both = torch.cat((angles.cos(), angles.sin()), dim=-1) * self.temperature
            return both.float().unsqueeze(2)
        lengths = torch.full_like(angles, self.temperature)
        return torch.polar(lengths, angles).to(torch.complex64).unsqueeze(2)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys (B, T, H, D), and values, rotated under ``--rotary-value``."""
        multiply = Multiply.apply if table.is_complex() else multiply_real
        if self.rotate_values:  # the temperature scales logits, not values
            q, k, v = multiply(table, self.pairing, q, k, v)
            return q, k, v / self.temperature
        q, k = multiply(table, self.pairing, q, k)
        return q, k, v

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """*x* (B, T, H, D) with its first d channels rotated."""
        multiply = Multiply.apply if table.is_complex() else multiply_real
        return multiply(table, self.pairing, x)[0]
