"""Rotary positions beyond the length of training: the same angles, at other frequencies.

A model trained on L tokens knows the angles m·θ_i for positions m < L.  To read s·L tokens, the
frequencies θ_i = base^{-2(i-1)/d}, i = 1 … d/2 (RoFormer Eq. 7), are lowered by a factor s that is
fixed for a run (one that followed the length would mix bases in the cache of a decoder):

    linear   θ_i / s                              position interpolation
    ntk      (base · s^{d/(d-2)})^{-2(i-1)/d}     the first as it was, the last over s
    yarn     γ_i · θ_i / s + (1 - γ_i) · θ_i      γ_i = 0 where a pair makes many turns in L tokens

Chen et al. 2023, arXiv 2306.15595; bloc97 2023, in Peng et al. 2023, arXiv 2309.00071, section 3.1;
Peng et al., section 3.2, with the ramp γ and the temperature as in their released code.
"""

import math
from dataclasses import dataclass
from typing import Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.errors import UsageError
from fairseq_posenc.options import Options
from fairseq_posenc.settings import setting

# turns in the length of training: a pair that makes more keeps its frequency, one that makes fewer
# is interpolated (Peng et al. section 3.2, for Llama)
MANY_TURNS, FEW_TURNS = 32, 1


@dataclass
class ScalingFlags:
    """Flags of the scaling; another choice than in training is no other model."""

    rotary_scaling: Optional[str] = setting(
        "none",
        "frequencies for sequences beyond the length of training: none, linear (position "
        "interpolation), ntk (a larger base), yarn",
        role="free",
        choices=("none", "linear", "ntk", "yarn"),
    )
    rotary_scaling_factor: Optional[float] = setting(
        1.0,
        "how many times the length of training is to be reached, above 1",
        role="free",
        at_least=1,
        at_most=1e6,
    )
    rotary_original_length: Optional[int] = setting(
        None,
        "tokens of the longest sequence in training (default: the longest that this training may "
        "see, kept in the checkpoint)",
        role="free",
        at_least=1,
    )


class Scaling(NamedTuple):
    """How rotary frequencies are lowered.

    Args:
        rule: a key of :data:`RULES`.
        factor: s.
        length: L, in tokens.
    """

    rule: str
    factor: float
    length: int

    def frequencies(self, dim: int, base: float) -> Tensor:
        """Frequencies of the dim/2 pairs, float64, on the CPU."""
        return RULES[self.rule](dim, base, self)

    @property
    def temperature(self) -> float:
        """Factor on rotated queries and on rotated keys (Peng et al. section 3.4)."""
        return 0.1 * math.log(self.factor) + 1.0 if self.rule == "yarn" else 1.0

    @property
    def reach(self) -> int:
        """Tokens of the longest sequence that these frequencies are for."""
        return int(self.factor * self.length)


def _none(dim: int, base: float, scaling: Scaling) -> Tensor:
    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def _linear(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base, scaling) / scaling.factor


def _ntk(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base * scaling.factor ** (dim / (dim - 2)), scaling)


def _yarn(dim: int, base: float, scaling: Scaling) -> Tensor:
    def pair_with(turns: float) -> float:
        """Index of the pair that makes so many *turns*, counted from 0, as a real number."""
        return dim * math.log(scaling.length / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(math.floor(pair_with(MANY_TURNS)), 0)
    last = min(math.ceil(pair_with(FEW_TURNS)), dim - 1)
    width = last - first if last != first else 0.001  # as in the released code
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    return _linear(dim, base, scaling) * ramp + _none(dim, base, scaling) * (1 - ramp)


RULES: Dict[str, Callable[[int, float, Scaling], Tensor]] = {
    "none": _none,
    "linear": _linear,
    "ntk": _ntk,
    "yarn": _yarn,
}
UNSCALED = Scaling("none", 1.0, 0)


def read_scaling(options: Options, dim: int, longest: int) -> Scaling:
    """The scaling that flags ask for.

    Args:
        options: reads the flags of :class:`ScalingFlags`.
        dim: rotated channels of a head.
        longest: the length of training, where the flags say nothing of it.

    Raises:
        UsageError: a flag has an impossible value, or lacks another one.
    """
    rule, factor = str(options.rotary_scaling), float(options.rotary_scaling_factor)
    length = int(options.rotary_original_length or longest)
    if rule == "none" and factor != 1:
        raise UsageError(
            f"--rotary-scaling-factor {factor:g}: without --rotary-scaling it would do nothing; "
            "give linear, ntk or yarn there"
        )
    if rule != "none" and factor == 1:
        raise UsageError(
            f"--rotary-scaling {rule}: give --rotary-scaling-factor, too: the longest sequence to "
            f"be read over the {length} tokens of training"
        )
    if rule == "ntk" and dim == 2:
        raise UsageError(
            "--rotary-scaling ntk: one pair of rotated channels keeps its frequency under any "
            "base; give linear, or larger heads"
        )
    return Scaling(rule, factor, length)
