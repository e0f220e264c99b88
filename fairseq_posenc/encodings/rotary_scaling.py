"""Scaling of rotary frequencies for sequences longer than in training.

A model trained on L tokens has seen the angles m·θ_i only for positions m < L.  To process s·L
tokens, the frequencies θ_i = base^{-2(i-1)/d}, i = 1 … d/2 (RoFormer Eq. 7), are lowered by a
factor s that is fixed for a run (a factor that depended on the length would mix frequencies in the
cache of a decoder):

    linear   θ_i / s                              position interpolation
    ntk      (base · s^{d/(d-2)})^{-2(i-1)/d}     θ_1 is unchanged, the last one divided by s
    yarn     γ_i · θ_i / s + (1 - γ_i) · θ_i      γ_i = 0 for pairs that rotate often in L tokens
    llama3   likewise, with another γ_i
    longrope θ_i / λ_i                            a factor for each pair, found by a search

``linear`` is from Chen et al. 2023, arXiv 2306.15595; ``ntk`` from bloc97 2023, in Peng et al.
2023, arXiv 2309.00071, section 3.1; ``yarn`` from Peng et al., section 3.2, with the ramp and the
temperature of their released code; ``llama3`` from Llama 3.1, arXiv 2407.21783; ``longrope`` from
Ding et al., arXiv 2402.13753, for all positions (the paper may leave the first n̂ unscaled), with
the temperature of the released code.  The γ of Peng et al. is 1 - γ here.  In ``yarn`` the ramp of
γ is linear in the number i of the pair and starts and ends at whole pairs; in ``yarn_untruncated``
the ramp starts and ends exactly at 32 rotations and at one; in ``llama3`` the ramp is linear in the
number of rotations, from 4 to 1, and there is no temperature.
"""

import logging
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

logger = logging.getLogger(__name__)

# rotations within L tokens: pairs with more keep their frequency, pairs with fewer are interpolated
# (β and α of Peng et al. section 3.2, for Llama)
MANY_TURNS, FEW_TURNS = 32, 1
# the same bounds in Llama 3.1
LLAMA3_MANY_TURNS, LLAMA3_FEW_TURNS = 4, 1
#: rules whose temperature scales the logits
TEMPERED = ("yarn", "yarn_untruncated", "longrope")


class Scaling(NamedTuple):
    """A scaling of rotary frequencies.

    Args:
        rule: a key of :data:`RULES`.
        factor: s.
        length: L, in tokens.
        factors: λ_i of the dim/2 pairs, for ``longrope``.
    """

    rule: str
    factor: float
    length: int
    factors: Tuple[float, ...] = ()

    def frequencies(self, dim: int, base: float) -> Tensor:
        """Frequencies of the dim/2 pairs, float64, on the CPU."""
        return RULES[self.rule](dim, base, self)

    @property
    def temperature(self) -> float:
        """Factor on rotated queries and keys (Peng et al. section 3.4, or LongRoPE's own)."""
        if self.rule == "longrope":
            return math.sqrt(1.0 + math.log(self.factor) / math.log(max(self.length, 2)))
        return 0.1 * math.log(self.factor) + 1.0 if self.rule in TEMPERED else 1.0

    @property
    def reach(self) -> int:
        """Longest sequence that the scaling is meant for, s·L, in tokens."""
        return int(self.factor * self.length)


def _none(dim: int, base: float, scaling: Scaling) -> Tensor:
    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def _linear(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base, scaling) / scaling.factor


def _ntk(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base * scaling.factor ** (dim / (dim - 2)), scaling)


def _yarn(dim: int, base: float, scaling: Scaling) -> Tensor:
    first, last = _ramp(dim, base, scaling)
    return _yarn_between(math.floor(first), math.ceil(last), dim, base, scaling)


def _yarn_untruncated(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _yarn_between(*_ramp(dim, base, scaling), dim, base, scaling)


def _ramp(dim: int, base: float, scaling: Scaling) -> Tuple[float, float]:
    """Real-valued indices, from 0, of the pairs with many and with few rotations in L tokens."""

    def pair_with(turns: float) -> float:
        return dim * math.log(scaling.length / (turns * 2 * math.pi)) / (2 * math.log(base))

    return pair_with(MANY_TURNS), pair_with(FEW_TURNS)


def _yarn_between(first: float, last: float, dim: int, base: float, scaling: Scaling) -> Tensor:
    first, last = max(first, 0), min(last, dim - 1)
    width = max(last - first, 0.001)  # as in the released code
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    return _interpolated(ramp, dim, base, scaling)


def _llama3(dim: int, base: float, scaling: Scaling) -> Tensor:
    turns = _none(dim, base, scaling) * scaling.length / (2 * math.pi)
    ramp = (LLAMA3_MANY_TURNS - turns) / (LLAMA3_MANY_TURNS - LLAMA3_FEW_TURNS)
    return _interpolated(ramp.clamp(0, 1), dim, base, scaling)


def _longrope(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base, scaling) / torch.tensor(scaling.factors, dtype=torch.float64)


def _interpolated(ramp: Tensor, dim: int, base: float, scaling: Scaling) -> Tensor:
    """γ θ / s + (1 - γ) θ, with γ from *ramp*."""
    return _linear(dim, base, scaling) * ramp + _none(dim, base, scaling) * (1 - ramp)


RULES: Dict[str, Callable[[int, float, Scaling], Tensor]] = {
    "none": _none,
    "linear": _linear,
    "ntk": _ntk,
    "yarn": _yarn,
    "yarn_untruncated": _yarn_untruncated,
    "llama3": _llama3,
    "longrope": _longrope,
}


def read_factors(value: str) -> str:
    """The numbers of ``--rotary-factors``, which a checkpoint keeps in place of a file's name.

    >>> read_factors("1, 1.5 4")
    '1.0,1.5,4.0'

    Args:
        value: name of a file, or numbers; separated by commas, spaces or line ends.

    Raises:
        UsageError: the file cannot be read, or holds anything but numbers above 0.
    """
    factors = _numbers(value)
    if factors is None:
        text = " ".join(read_lines(value, f"--rotary-factors {value}"))
        factors = _numbers(text)
    if not factors or not all(0 < factor < math.inf for factor in factors):
        wrong = [factor for factor in factors or () if not 0 < factor < math.inf]
        what = f"{wrong[0]:g} is no factor" if wrong else "is no list of numbers"
        raise UsageError(
            f"--rotary-factors {value}: {what}; give a file with one number above 0 for each "
            "rotated pair of channels"
        )
    return ",".join(map(repr, factors))


def _numbers(text: str) -> Optional[List[float]]:
    """The numbers in *text*, or None if it holds anything else."""
    try:
        return [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        return None


@dataclass
class ScalingFlags:
    """Flags of the scaling; evaluation may change them."""

    rotary_scaling: Optional[str] = setting(
        "none",
        "scaling of the frequencies for sequences longer than in training: none, linear (position "
        "interpolation), ntk (a larger base), yarn, yarn_untruncated (its ramp between exact "
        "ends), llama3, longrope (a factor for each pair)",
        role="free",
        choices=RULES,
        refused={
            "dynamic": "keys are cached already rotated, so a factor that follows the length would "
            "mix frequencies; give ntk, with the factor of the longest sequence"
        },
    )
    rotary_scaling_factor: Optional[float] = setting(
        1.0,
        "longest sequence to process divided by the length in training, above 1",
        role="free",
        at_least=1,
        at_most=1e6,
    )
    rotary_factors: Optional[str] = setting(
        None,
        "file with one factor for each rotated pair of channels, by which --rotary-scaling "
        "longrope divides their frequencies; checkpoints keep the numbers",
        role="free",
        stored=read_factors,
        needs={"rotary_scaling": ("longrope",)},
    )
    rotary_original_length: Optional[int] = setting(
        None,
        "longest sequence in training, in tokens (default: the longest that the training run "
        "accepts, stored in the checkpoint)",
        role="free",
        at_least=1,
        at_most=2**31 - 1,
    )


UNSCALED = Scaling("none", 1.0, 0)


def read_scaling(options: Options, longest: int) -> Scaling:
    """The scaling selected by the flags.

    Args:
        options: reads the flags of :class:`ScalingFlags`.
        longest: length in training, in tokens, unless ``rotary_original_length`` sets it.
    """
    rule, factor = str(options.rotary_scaling), float(options.rotary_scaling_factor)
    length = int(options.rotary_original_length or longest)
    factors = _numbers(options.rotary_factors or "") if rule == "longrope" else None
    return Scaling(rule, factor, length, tuple(factors or ()))


def check_scaling(options: Options, dim: int, longest: int) -> None:
    """Refuse flags of scaling that contradict or require each other.

    Args:
        options: reads the flags of :class:`ScalingFlags`.
        dim: rotated channels of a head.
        longest: length in training, as for :func:`read_scaling`.

    Raises:
        UsageError: naming the flag.
    """
    rule, factor, length, factors = read_scaling(options, longest)
    if rule == "none" and factor != 1:
        raise UsageError(
            f"--rotary-scaling-factor {factor:g}: has no effect without --rotary-scaling; give "
            f"one of {', '.join(name for name in RULES if name != 'none')} there"
        )
    if rule != "none" and factor == 1:
        raise UsageError(
            f"--rotary-scaling {rule}: also give --rotary-scaling-factor, the longest sequence to "
            f"process divided by the {length} tokens of training"
        )
    if rule == "longrope" and len(factors) != dim // 2:
        fault = f"has {len(factors)} factors" if factors else "is not given"
        raise UsageError(
            f"--rotary-factors: {fault}, and heads have {dim // 2} rotated pairs; give a file with "
            "one factor for each pair"
        )
    if rule == "ntk" and dim == 2:
        raise UsageError(
            "--rotary-scaling ntk: one pair of rotated channels keeps its frequency under any "
            "base; give linear, or larger heads"
        )


@lru_cache(maxsize=None)  # warns once per run
def warn_of_length(scaling: Scaling) -> None:
    """Warn of sequences that are longer than the scaling reaches."""
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
