"""Position encodings as CTranslate2 computes them: one function for each that it can express.

A new encoding needs one function here, or in a user's own ``--user-dir``, under :func:`expresses`;
an encoding without one is refused by name.  Encodings whose logits are a function of the distance
alone need no more than ``expresses("NAME", acts="bias", flags=(…))(bias_by_distance)``.

The engine has rotary embeddings, relative keys and values (Shaw), a bias by bucket of the distance
(T5) and, in decoders, ALiBi.  Where self-attention has none of these, it adds a table to the
embeddings.  Other encodings are expressed through them:

* a bias of any relative encoding becomes a table with a bucket for every distance (ALiBi in an
  encoder, and T5, whose own buckets the engine would round in float32);
* no positions are rotations by an angle of zero;
* a scaling of rotary frequencies, such as YaRN, is a divisor for every frequency, its temperature a
  factor on the projections of queries and keys.
"""

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, cast

import numpy as np
import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.encodings.rotary_frequencies import frequencies
from fairseq_posenc.flags.options import Layer

#: Divides positions, so that every angle of a rotation is zero in float32.
_NO_ROTATION = 1e30


class Positions(NamedTuple):
    """The positions of one self-attention, in the engine's terms."""

    arguments: Dict[str, Any] = {}  # arguments of the specification
    tensors: Dict[str, Any] = {}  # attributes of the specification, to be filled in
    temperature: float = 1.0  # factor on the rotated channels of queries and of keys
    rotated: int = 0  # number of these channels in every head
    # length in tokens from which on the positions are approximate, or None
    exact_below: Optional[int] = None

    def and_also(self, other: "Positions") -> "Positions":
        """Both at once; at most one of them rotates."""
        limits = [each.exact_below for each in (self, other) if each.exact_below is not None]
        return Positions(
            {**self.arguments, **other.arguments},
            {**self.tensors, **other.tensors},
            self.temperature * other.temperature,
            self.rotated + other.rotated,
            min(limits) if limits else None,
        )


class Expression(NamedTuple):
    """What the engine needs of an encoding.

    Args:
        positions: the positions that it contributes, given a self-attention of this plug-in.
        acts: ``rotation`` or ``bias``, which the engine combines, or ``alone``.
        flags: settings that *positions* takes into account; others are refused unless default.
    """

    positions: Callable[[Any], Positions]
    acts: str
    flags: Tuple[str, ...]


EXPRESSIONS: Dict[str, Expression] = {}


def expresses(
    *names: str, acts: str = "alone", flags: Sequence[str] = ()
) -> Callable[[Callable[[Any], Positions]], Callable[[Any], Positions]]:
    """Decorator of the function that expresses encodings, given a self-attention.

    Args:
        names: values of ``--position-encoding``.
        acts: as for :class:`Expression`.
        flags: as for :class:`Expression`.
    """

    def add(function: Callable[[Any], Positions]) -> Callable[[Any], Positions]:
        EXPRESSIONS.update(dict.fromkeys(names, Expression(function, acts, tuple(flags))))
        return function

    return add


@expresses("sinusoidal", "learned")
def input_table(attention: Layer) -> Positions:
    """Nothing: the table is added to the embeddings."""
    return Positions()


@expresses("none", acts="rotation")
def no_positions(attention: Layer) -> Positions:
    """Rotations by zero, without which the engine would add sinusoids to the embeddings."""
    return _rotations(2, "interleaved", 10000.0, "Linear", {"rotary_scaling_factor": _NO_ROTATION})


@expresses(
    "rotary",
    acts="rotation",
    flags=(
        *("rotary_base", "rotary_fraction", "rotary_pairing"),
        *("rotary_scaling", "rotary_scaling_factor", "rotary_factors", "rotary_original_length"),
    ),
)
def rotary(attention: Layer) -> Positions:
    """Rotations with the base, the fraction, the pairing and the scaling of the model.

    Raises:
        UsageError: values are rotated, too.
    """
    module = attention.encoding.transform
    if module.rotate_values:
        raise UsageError("--rotary-value: CTranslate2 rotates queries and keys, not values")
    scaling, dim, base = module.scaling, module.dim, attention.kind.variant
    rule, tensors = None, {}
    if scaling.rule != "none":  # a divisor for every frequency, in two lists, by the length
        divisors = frequencies(dim, base) / frequencies(dim, base, None, scaling)
        names = ("rotary_scaling_long_factor", "rotary_scaling_short_factor")
        rule, tensors = "Su", {name: divisors.float().numpy().copy() for name in names}
    found = _rotations(dim, module.pairing, base, rule, {})
    return found._replace(tensors=tensors, temperature=module.temperature, rotated=dim)


def _rotations(
    dim: int, pairing: str, base: float, rule: Optional[str], more: Dict[str, Any]
) -> Positions:
    from ctranslate2.specs.attention_spec import RotaryScalingType

    arguments = {
        "rotary_dim": dim,
        "rotary_interleave": pairing == "interleaved",
        "rotary_base": base,
        "rotary_scaling_type": RotaryScalingType[rule] if rule else None,
    }
    return Positions({**arguments, **more})


@expresses("shaw", flags=("shaw_max_distance", "shaw_values"))
def shaw(attention: Layer) -> Positions:
    """Tables for distances from -K to K; a decoder's future distances get zeros."""
    terms = attention.position_terms["shaw"]
    keys = terms.key_table.weight
    values = torch.zeros_like(keys) if terms.value_table is None else terms.value_table.weight
    rows = 2 * terms.max_distance + 1

    def padded(table: torch.Tensor) -> np.ndarray:
        full = table.new_zeros(rows, table.size(1))
        full[: len(table)] = table
        return full.float().numpy()

    tensors = {"relative_position_keys": padded(keys), "relative_position_values": padded(values)}
    return Positions({"relative_position": True}, tensors)


@expresses("t5", "alibi", acts="bias", flags=("t5_num_buckets", "t5_max_distance"))
def bias_by_distance(attention: Layer) -> Positions:
    """A bucket for every distance below a reach; beyond it, buckets grow logarithmically.

    From T5's maximal distance on, all distances have the same bias, and the table is exact for
    every length, also above what the model accepts; ALiBi's is exact for those that it accepts.
    """
    encoding: PositionEncoding = attention.encoding
    longest = encoding.stack.max_positions
    biases = cast(List[DistanceBias], list(cast(Any, encoding.shared_bias).values()))
    reach = max(reach_of(bias, longest) for bias in biases)
    exact = all(reach_of(bias, reach + 1) <= reach for bias in biases)
    return Positions(
        {"relative_attention_bias": True},
        {
            "relative_attention_bias": _table(biases, reach, encoding.stack.causal),
            "relative_attention_max_distance": np.dtype("int32").type(2 * reach),
        },
        exact_below=None if exact else reach,
    )


def reach_of(bias: Layer, longest: int) -> int:
    """T5's maximal distance, from which on all distances share a logit, or else *longest*."""
    return int(getattr(bias, "max_distance", longest))


def _table(biases: Iterable[DistanceBias], reach: int, causal: bool) -> np.ndarray:
    """The bias of every bucket of the engine, (buckets, H).

    A side has 2 · reach buckets: one for each distance below *reach*, and as many up to twice that.

    Args:
        reach: in tokens.
        causal: whether there is only the side of earlier keys.
    """
    rows = range(2 * reach)
    steps = [r if r < reach else round(reach * 2 ** ((r - reach) / reach)) for r in rows]
    later = torch.tensor(steps)
    distances = -later if causal else torch.cat((-later, later))
    logits = [bias.by_distance(distances).float() for bias in biases]  # (H, buckets)
    return torch.stack(logits).sum(dim=0).t().contiguous().numpy()


def positions_of(attention: Layer, names: List[str]) -> Positions:
    """The positions of one self-attention of this plug-in."""
    found = Positions()
    for function in dict.fromkeys(EXPRESSIONS[name].positions for name in names):
        found = found.and_also(function(attention))
    return found


def refuse_encodings(path: str, flag: str, value: str, period: List[str]) -> None:
    """Refuse encodings, and combinations of them, that the engine cannot compute.

    Args:
        flag: the flag of the encoding of this side.
        value: its value.
        period: the composition of each layer in a pattern.
    """
    shown = f"{path}: {flag} {value}: CTranslate2"
    compositions = [names.split("+") for names in dict.fromkeys(period)]
    for names in compositions:
        lost = [name for name in names if name not in EXPRESSIONS]
        if lost:
            known = ", ".join(sorted(EXPRESSIONS))
            raise UsageError(f"{shown} cannot compute {lost[0]}; it has {known}")
        alone = _acting("alone", names)
        if alone and len(names) > 1:
            raise UsageError(
                f"{shown} computes {alone[0]} only alone; it can combine rotary with "
                f"{' or '.join(_acting('bias', EXPRESSIONS))}"
            )
    with_bias = ["+".join(names) for names in compositions if _acting("bias", names)]
    if len(with_bias) > 1:
        raise UsageError(
            f"{shown} has one bias for all layers of a stack, and {' and '.join(with_bias)} differ"
        )


def _acting(acts: str, names: Iterable[str]) -> List[str]:
    return [name for name in names if EXPRESSIONS[name].acts == acts]
