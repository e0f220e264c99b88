"""Rotary position embedding (RoPE).

RoFormer, Su et al., arXiv 2104.09864.  Queries and keys are rotated by an angle that grows with
their position, so that their product depends on the distance only (Eq. 8):

    (R_m q)·(R_n k) = q · R_{n-m} k,    R_m = diag of 2x2 rotations by m·θ_i   (Eq. 7)
    θ_i = base^{-2(i-1)/d},  i = 1 … d/2,  base = 10000

A 2x2 rotation is computed as a complex multiplication (Eq. 4), see
:mod:`~fairseq_posenc.encodings.rotation`.
"""

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import QKVTransform, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.encodings.rotary_scaling import (
    TEMPERED,
    UNSCALED,
    Scaling,
    ScalingFlags,
    check_scaling,
    read_scaling,
)
from fairseq_posenc.encodings.rotation import (
    PAIRINGS,
    Multiply,
    complex_table,
    multiply,
    multiply_real,
    real_table,
)
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting

logger = logging.getLogger(__name__)


@dataclass
class RotaryFlags(ScalingFlags):
    """Flags of the rotary encoding."""

    rotary_base: Optional[float] = setting(
        10000.0,
        "base of the rotary frequencies θ_i = base^(-2i/d)",
        role="model",
        above=1,
        at_most=1e12,
    )
    rotary_fraction: Optional[float] = setting(
        1.0,
        "fraction of each head's channels that is rotated, above 0 and up to 1; the other channels "
        "carry no position",
        role="model",
        above=0,
        at_most=1,
    )
    rotary_pairing: Optional[str] = setting(
        "interleaved",
        "which channels form a pair: interleaved (1,2)(3,4)… as in RoFormer Eq. 26, or half "
        "(i, i+d/2) as in GPT-NeoX and Llama",
        role="model",
        choices=PAIRINGS,
    )
    rotary_value: Optional[bool] = setting(
        False,
        "also rotate the values, as some released models do; the encoding is then no longer purely "
        "relative",
        role="model",
    )


def rotated_channels(options: Options, stack: Stack) -> int:
    """d, the number of channels of each head that are rotated."""
    return 2 * round(stack.head_dim * float(options.rotary_fraction) / 2)


@lru_cache(maxsize=None)  # constant; recomputing it would dominate a decoding step
def frequencies(
    dim: int, base: float, device: Optional[torch.device] = None, scaling: Scaling = UNSCALED
) -> Tensor:
    """θ_i = base^{-2(i-1)/dim} for i = 1 … dim/2 (RoFormer Eq. 7), float64, shape (dim/2,).

    >>> frequencies(4, 10000.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)

    Args:
        dim: number of rotated channels.
        base: 10000 in the paper.
        device: device of the result.
        scaling: lowers the frequencies for sequences longer than in training.
    """
    return scaling.frequencies(dim, base).to(device)


@lru_cache(maxsize=None)  # warns once per run
def _warn_of_length(scaling: Scaling) -> None:
    trained = f"longer than the {scaling.length} tokens of training"
    if scaling.rule == "none":
        what = (
            f"sequences {trained}, without --rotary-scaling: results often get worse; give yarn, "
            f"ntk or linear, and --rotary-scaling-factor F with F · {scaling.length} or more tokens"
            " (on a trained model: --model-overrides "
            "\"{'rotary_scaling': 'yarn', 'rotary_scaling_factor': F}\")"
        )
    else:
        what = (
            f"sequences {trained}, and longer than the {scaling.reach} that "
            f"--rotary-scaling-factor {scaling.factor:g} covers: give a larger factor"
        )
    logger.warning(what)


@register_encoding(
    "rotary",
    paper="Su et al. 2021, arXiv 2104.09864",
    summary="queries and keys rotated by an angle proportional to their position (RoFormer)",
    flags=RotaryFlags,
)
class Rotary(QKVTransform):
    """Rotates the leading channels of every head (RoFormer Eq. 4 and 7).

    Args:
        options: reads ``rotary_base``, ``rotary_fraction``, ``rotary_pairing``,
            ``rotary_value`` and the flags of :class:`ScalingFlags`.
        stack: head size and, unless a flag gives it, the length in training.
    """

    applies_to_features = True  # rotations keep norms

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.base = float(options.rotary_base)
        self.pairing = str(options.rotary_pairing)
        self.rotate_values = bool(options.rotary_value)
        #: rotate in real numbers, for graphs in which complex ones have no operators
        self.real_valued = bool(option(options, "compile_layers", False))
        self.dim = rotated_channels(options, stack)
        self.scaling = read_scaling(options, stack.max_positions)
        self.temperature, self.reach = self.scaling.temperature, self.scaling.reach

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse odd head sizes, fractions without a pair, and scaling without effect."""
        size = f"head size {stack.head_dim} of the {stack.side}"
        if stack.head_dim % 2:
            raise UsageError(
                f"--position-encoding rotary: rotates pairs of channels, and the {size} is odd; "
                f"make it even by {stack.size_flags}"
            )
        dim = rotated_channels(options, stack)
        if dim == 0:
            raise UsageError(
                f"--rotary-fraction {options.rotary_fraction:g}: leaves no pair of channels of "
                f"{size}; the smallest that works is {2 / stack.head_dim:g}"
            )
        check_scaling(options, dim, stack.max_positions)

    @classmethod
    def check_features(cls, options: Options) -> Optional[str]:
        """Rotated values and the temperature of YaRN rule out rotated features."""
        if options.rotary_value:
            return "--rotary-value: only features of queries and keys are rotated, not values"
        if options.rotary_scaling in TEMPERED:
            return (
                f"--rotary-scaling {options.rotary_scaling}: its temperature scales logits, which "
                "are not computed"
            )
        return None

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """``--rotary-value``, if enabled."""
        return "--rotary-value" if options.rotary_value else None

    def set_trained_length(self, length: int) -> None:
        """Replace the length in training, in tokens, unless frequencies are scaled by it."""
        if self.scaling.rule == "none":
            self.scaling, self.reach = self.scaling._replace(length=length), length

    def check_length(self, length: int) -> None:
        """Warn, once per run, about sequences longer than in training."""
        if length > self.reach and not self.training:
            _warn_of_length(self.scaling)

    def table(self, positions: Tensor) -> Tensor:
        """e^{i m θ}, times the temperature, for every position m and frequency θ.

        Angles are float64: in float32 an angle of 4,096 radians is already off by 2e-4, in half
        precision by full rotations.  The result is complex64, which ``.half()`` does not cast.

        Args:
            positions: (1|B, T), integers.

        Returns:
            (1|B, T, 1, d/2), complex64; or, under ``real_valued`` and where a graph is traced,
            cosines before sines, (1|B, T, 1, d), float32.
        """
        theta = frequencies(self.dim, self.base, positions.device, self.scaling)
        angles = positions.to(torch.float64).unsqueeze(-1) * theta  # (1|B, T, d/2)
        if self.real_valued or torch.jit.is_tracing():
            return real_table(angles, self.temperature).unsqueeze(2)
        return complex_table(angles, self.temperature).unsqueeze(2)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys (B, T, H, D), and values, rotated under ``--rotary-value``."""
        if self.rotate_values:  # the temperature scales logits, not values
            v = self.rotate(v, table) / self.temperature
        q, k = self.rotate_all((q, k), table)
        return q, k, v

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """The only element of :meth:`rotate_all` for *x* (B, T, H, D) alone."""
        return self.rotate_all((x,), table)[0]

    def rotate_all(self, tensors: Tuple[Tensor, ...], table: Tensor) -> Tuple[Tensor, ...]:
        """Rotate the first d channels of each head by *table*, in float32.

        Args:
            tensors: queries, keys or both, (B, T, H, D) each.
            table: (1|B, T, 1, d/2 or d), from :meth:`table`.

        Returns:
            shaped like *tensors*, in their type.
        """
        whole = self.dim == tensors[0].size(-1)
        heads = tensors if whole else tuple(x[..., : self.dim] for x in tensors)
        if table.is_complex() and torch.is_grad_enabled():
            rotated = Multiply.apply(table, self.pairing, *heads)
        else:
            product = multiply if table.is_complex() else multiply_real
            rotated = product(heads, table, self.pairing)
        if whole:
            return rotated
        return tuple(torch.cat((r, x[..., self.dim :]), -1) for r, x in zip(rotated, tensors))
