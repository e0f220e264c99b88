"""The frequencies of rotary encodings, and their scaling for sequences longer than in training.

RoFormer Eq. 7 (Eq. 15 in arXiv 2104.09864) rotates pair i by m·θ_i at position m, with

    θ_i = base^{-2(i-1)/d},    i = 1 … d/2.

p-RoPE (Barbero et al., arXiv 2410.06205) sets θ_i = 0 for i > p · d/2: pairs that are not rotated
carry meaning over any distance.  Rotating only a share of the channels would instead spread all
frequencies over fewer pairs.

A model trained on L tokens has seen the angles m·θ_i only for positions m < L.  To process s·L
tokens, the frequencies are lowered by a factor s that is fixed for a run (a factor that depended on
the length would mix frequencies in the cache of a decoder):

    linear   θ_i / s                              position interpolation
    ntk      (base · s^{d/(d-2)})^{-2(i-1)/d}     θ_1 is unchanged, the last frequency divided by s
    yarn     γ_i · θ_i / s + (1 - γ_i) · θ_i      γ_i = 0 for pairs that rotate often in L tokens
    llama3   the same, with a different γ_i
    longrope θ_i / λ_i                            a factor for each pair, found by a search

``linear`` is from Chen et al. 2023, arXiv 2306.15595; ``ntk`` from bloc97 2023, see Peng et al.
2023, arXiv 2309.00071, section 3.1; ``yarn`` from Peng et al., section 3.2, with the ramp and the
temperature of their released code; ``llama3`` from Llama 3.1, arXiv 2407.21783; ``longrope`` from
Ding et al., arXiv 2402.13753, for all positions (the paper can leave the first n̂ unscaled), with
the temperature of the released code.  The γ of Peng et al. is 1 - γ here.  In ``yarn``, the ramp
of γ is linear in the index i of the pair, and its ends are rounded to integers; in
``yarn_untruncated``, it goes from exactly 32 rotations to exactly 1.  In ``llama3``, the ramp is
linear in the number of rotations, from 4 to 1, and there is no temperature.
"""

import logging
import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

logger = logging.getLogger(__name__)

# numbers of rotations within L tokens: pairs with more than MANY_TURNS keep their frequency, pairs
# with fewer than FEW_TURNS are interpolated (β and α for Llama in Peng et al. section 3.2)
MANY_TURNS, FEW_TURNS = 32, 1
# the same bounds in Llama 3.1
LLAMA3_MANY_TURNS, LLAMA3_FEW_TURNS = 4, 1
#: rules whose temperature scales the logits
TEMPERED = ("yarn", "yarn_untruncated", "longrope")


class Scaling(NamedTuple):
    """A scaling of rotary frequencies."""

    rule: str  # a key of RULES
    factor: float  # s
    length: int  # L, in tokens
    factors: Tuple[float, ...] = ()  # λ_i of the d/2 pairs, for ``longrope``

    def frequencies(self, dim: int, base: float) -> Tensor:
        """Frequencies of the d/2 pairs, float64, on the CPU."""
        return RULES[self.rule](dim, base, self)

    @property
    def temperature(self) -> float:
        """Factor on rotated queries and keys, of Peng et al. section 3.4 or of LongRoPE."""
        if self.rule == "longrope":
            return math.sqrt(1.0 + math.log(self.factor) / math.log(max(self.length, 2)))
        return 0.1 * math.log(self.factor) + 1.0 if self.rule in TEMPERED else 1.0

    @property
    def reach(self) -> int:
        """Longest sequence that the scaling is meant for, s·L, in tokens."""
        return int(self.factor * self.length)


UNSCALED = Scaling("none", 1.0, 0)


def _none(dim: int, base: float, scaling: Scaling = UNSCALED) -> Tensor:
    return base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def _linear(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base) / scaling.factor


def _ntk(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base * scaling.factor ** (dim / (dim - 2)))


def _yarn(dim: int, base: float, scaling: Scaling, whole: bool = True) -> Tensor:
    # ends of the ramp: indices, from 0, of pairs with MANY_TURNS and with FEW_TURNS rotations
    first, last = (
        dim * math.log(scaling.length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (MANY_TURNS, FEW_TURNS)
    )
    if whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = max(last - first, 0.001)  # as in the released code
    ramp = (torch.arange(dim // 2, dtype=torch.float64) - first) / width
    return _interpolated(ramp, dim, base, scaling)


def _llama3(dim: int, base: float, scaling: Scaling) -> Tensor:
    turns = _none(dim, base) * scaling.length / (2 * math.pi)
    ramp = (LLAMA3_MANY_TURNS - turns) / (LLAMA3_MANY_TURNS - LLAMA3_FEW_TURNS)
    return _interpolated(ramp, dim, base, scaling)


def _interpolated(ramp: Tensor, dim: int, base: float, scaling: Scaling) -> Tensor:
    """γ θ / s + (1 - γ) θ, where γ is *ramp* between 0 and 1."""
    ramp = ramp.clamp(0, 1)
    return _linear(dim, base, scaling) * ramp + _none(dim, base) * (1 - ramp)


def _longrope(dim: int, base: float, scaling: Scaling) -> Tensor:
    return _none(dim, base) / torch.tensor(scaling.factors, dtype=torch.float64)


RULES: Dict[str, Callable[[int, float, Scaling], Tensor]] = {
    "none": _none,
    "linear": _linear,
    "ntk": _ntk,
    "yarn": _yarn,
    "yarn_untruncated": partial(_yarn, whole=False),
    "llama3": _llama3,
    "longrope": _longrope,
}


@lru_cache(maxsize=None)  # recomputing it would dominate a decoding step
def frequencies(
    dim: int,
    base: float,
    device: Optional[torch.device] = None,
    scaling: Scaling = UNSCALED,
    kept: Optional[int] = None,
) -> Tensor:
    """θ_i of d = *dim* channels for i = 1 … d/2, (d/2,), float64; 0 after the first *kept* pairs.

    >>> frequencies(4, 10000.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> frequencies(4, 10000.0, kept=1)
    tensor([1., 0.], dtype=torch.float64)
    """
    theta = scaling.frequencies(dim, base)
    if kept is not None and kept < len(theta):  # not in place, which ONNX does not support
        theta = torch.cat((theta[:kept], torch.zeros_like(theta[kept:])))
    return theta.to(device)


def read_factors(value: str) -> str:
    """The numbers of ``--rotary-factors``, which a checkpoint stores instead of a file name.

    >>> read_factors("1, 1.5 4")
    '1.0,1.5,4.0'

    *value* is a list of numbers, separated by commas, spaces or line ends, or a file with these.

    Raises:
        UsageError: the file cannot be read, or holds anything but numbers above 0.
    """
    factors = _numbers(value)
    if factors is None:
        factors = _numbers(" ".join(read_lines(value, f"--rotary-factors {value}")))
    wrong = [factor for factor in factors or () if not 0 < factor < math.inf]
    if wrong or not factors:
        what = f"{wrong[0]:g} is no valid factor" if wrong else "is not a list of numbers"
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
    """Flags of frequency scaling; evaluation may change them."""

    rotary_scaling: Optional[str] = setting(
        "none",
        "scaling of the frequencies for sequences longer than in training: none, linear (position "
        "interpolation), ntk (a larger base), yarn, yarn_untruncated (yarn with exact ends "
        "of the ramp), llama3, longrope (a factor for each pair)",
        role="free",
        choices=RULES,
        refused={
            "dynamic": "keys are rotated before they are cached, so a factor that depends on the "
            "length would mix frequencies; give ntk, with the factor for the longest sequence"
        },
    )
    rotary_scaling_factor: Optional[float] = setting(
        1.0,
        "longest sequence to process divided by the length in training",
        role="free",
        at_least=1,
        at_most=1e6,
    )
    rotary_factors: Optional[str] = setting(
        None,
        "file with one factor for each rotated pair of channels; --rotary-scaling longrope divides "
        "the frequency of the pair by the factor, and checkpoints store the factors",
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


def read_scaling(options: Options, longest: int) -> Scaling:
    """The scaling of a model; *longest* is the default of ``--rotary-original-length``."""
    rule, factor = str(options.rotary_scaling), float(options.rotary_scaling_factor)
    length = int(options.rotary_original_length or longest)
    factors = _numbers(options.rotary_factors or "") if rule == "longrope" else None
    return Scaling(rule, factor, length, tuple(factors or ()))


def check_scaling(scaling: Scaling, dim: int) -> None:
    """Refuse contradictory or missing flags of *scaling*; *dim* channels are rotated."""
    rule, factor, length, factors = scaling
    if rule == "none" and factor != 1:
        raise UsageError(
            f"--rotary-scaling-factor {factor:g}: has no effect without --rotary-scaling; "
            f"also set that flag to one of {', '.join(name for name in RULES if name != 'none')}"
        )
    if rule != "none" and factor == 1:
        raise UsageError(
            f"--rotary-scaling {rule}: also give --rotary-scaling-factor, the longest sequence to "
            f"process divided by the {length} tokens of training"
        )
    if rule == "longrope" and len(factors) != dim // 2:
        fault = f"has {len(factors)} factors" if factors else "is not given"
        raise UsageError(
            f"--rotary-factors: {fault}, but heads have {dim // 2} rotated pairs; give a file with "
            "one factor for each pair"
        )
    if rule == "ntk" and dim == 2:
        raise UsageError(
            "--rotary-scaling ntk: one pair of rotated channels keeps its frequency under any "
            "base; give linear, or larger heads"
        )


@lru_cache(maxsize=None)  # warns once per run
def warn_of_length(scaling: Scaling) -> None:
    """Warn of sequences that are longer than :attr:`Scaling.reach`."""
    remedy = f"and longer than the {scaling.reach} that --rotary-scaling-factor "
    remedy += f"{scaling.factor:g} covers: give a larger factor"
    if scaling.rule == "none":
        remedy = (
            "without --rotary-scaling: results often get worse; give yarn, ntk or linear, and "
            f"--rotary-scaling-factor F, for up to F · {scaling.length} tokens (for a trained "
            "model: --model-overrides \"{'rotary_scaling': 'yarn', 'rotary_scaling_factor': F}\")"
        )
    logger.warning(f"sequences longer than the {scaling.length} tokens of training, {remedy}")
