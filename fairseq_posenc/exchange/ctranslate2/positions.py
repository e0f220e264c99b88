"""The settings and the position encodings that CTranslate2 can represent.

A setting with the role ``model`` is accepted if it is in the lists of this file, if an encoding
lists it in its *flags*, if it has its default, or if it has no effect in the model at hand.

A new encoding needs one function with the decorator :func:`expresses`, here or in a ``--user-dir``;
an encoding without such a function is refused.  If the logits of an encoding depend on the distance
alone, ``expresses("NAME", acts="bias", flags=(…))(bias_by_distance)`` is enough.

The engine has rotary embeddings, relative keys and values (Shaw), a bias per bucket of distances
(T5) and, in decoders, ALiBi.  If self-attention has none of these, the engine adds a table of
positions to the embeddings.  Other encodings are converted to one of these forms:

* the bias of a relative encoding becomes a table with a bucket for every distance (for ALiBi in an
  encoder, and for T5, because the engine would round T5's own buckets in float32);
* ``none`` becomes rotations by an angle of zero;
* a scaling of rotary frequencies, such as YaRN, becomes one divisor per frequency, and its
  temperature becomes a factor on the projections of queries and keys.
"""

from argparse import Namespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

import numpy as np
import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.features import side_encoding
from fairseq_posenc.encodings import PositionEncoding, parse
from fairseq_posenc.encodings.base import Rotation
from fairseq_posenc.encodings.rotary_frequencies import frequencies
from fairseq_posenc.exchange import formats
from fairseq_posenc.flags.options import SIDES, Layer
from fairseq_posenc.models.kinds import MASKED, Kind, Settings

ENGINE = "CTranslate2"
#: Names of the engine's activations, by the value of ``--activation-fn``.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_accurate": "GELUTanh",
    "gelu_fast": "GELUTanh",
    "tanh": "Tanh",
}
#: Settings that may have any value, besides the flags of each :class:`Expression`.
_READ = (
    *formats.FROM_PARAMETERS,
    *(f"{side}_{name}" for side in SIDES for name in ("input_dim", "output_dim")),
    "num_positions",
)
#: The supported values, by setting.
_VALUES = {
    "activation_fn": tuple(ACTIVATIONS),
    "norm": ("layer", "rms"),
    "feed_forward": ("mlp", "glu"),
}
#: Settings of an encoder's output layers, which are not exported, and of its segments, which the
#: exported encoder takes as token types.
_OF_ENCODERS = (
    *("lm_head", "untie_weights_roberta", "pooler_activation_fn"),
    *("spectral_norm_classification_head", "pooler", "pooler_norm", "num_segments", "segments"),
)
#: A divisor of positions, so large that every angle of a rotation is zero in float32.
_NO_ROTATION = 1e30


class Positions(NamedTuple):
    """The positions of one self-attention, as the engine's specification represents them."""

    arguments: Dict[str, Any] = {}  # arguments of the specification
    tensors: Dict[str, Any] = {}  # attributes of the specification, to be filled in
    temperature: float = 1.0  # factor on the rotated channels of queries and of keys
    rotated: int = 0  # number of rotated channels in every head
    # length in tokens from which on the positions are approximate, or None
    exact_below: Optional[int] = None

    def and_also(self, other: "Positions") -> "Positions":
        """These positions combined with *other*; at most one of the two rotates."""
        return Positions(
            {**self.arguments, **other.arguments},
            {**self.tensors, **other.tensors},
            self.temperature * other.temperature,
            self.rotated + other.rotated,
            min(filter(None, (self.exact_below, other.exact_below)), default=None),
        )


#: A function that converts an encoding, given the encoding and the number of a layer.
Function = Callable[[PositionEncoding, int], Positions]


class Expression(NamedTuple):
    """How an encoding is converted for the engine."""

    positions: Function  # converts the encoding in a layer
    acts: str  # ``rotation`` or ``bias``, which the engine can combine, or ``alone``
    # settings that *positions* takes into account; other settings must have their defaults
    flags: Tuple[str, ...]


EXPRESSIONS: Dict[str, Expression] = {}


def expresses(
    *names: str, acts: str = "alone", flags: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """Register the decorated function as the conversion of the encodings *names*.

    Args:
        names: values of ``--position-encoding``.
        acts: see :class:`Expression`.
        flags: see :class:`Expression`.
    """

    def add(function: Function) -> Function:
        EXPRESSIONS.update(dict.fromkeys(names, Expression(function, acts, tuple(flags))))
        return function

    return add


# for these encodings, the engine adds a table of positions to the embeddings
expresses("sinusoidal", "learned")(lambda encoding, layer: Positions())
expresses("none", acts="rotation")(lambda encoding, layer: no_rotations())


def no_rotations() -> Positions:
    """Rotations by zero; without rotations, the engine would add sinusoids to the embeddings."""
    turned = _rotations(2, "interleaved", 10000.0, "Linear")
    return Positions({**turned, "rotary_scaling_factor": _NO_ROTATION})


@expresses(
    "rotary",
    acts="rotation",
    flags=(
        *("rotary_base", "rotary_fraction", "rotary_pairing"),
        *("rotary_scaling", "rotary_scaling_factor", "rotary_factors", "rotary_original_length"),
    ),
)
def rotary(encoding: PositionEncoding, layer: int) -> Positions:
    """Rotations with the base, the fraction, the pairing and the scaling of the model."""
    theta, base, pairing, temperature = cast(Rotation, encoding.rotation(layer))
    dim, rule, tensors = 2 * len(theta), None, {}
    unscaled = frequencies(dim, base)
    if not torch.equal(theta, unscaled):  # the same divisors for short and long texts
        names = ("rotary_scaling_long_factor", "rotary_scaling_short_factor")
        rule, tensors = "Su", {name: (unscaled / theta).float().numpy() for name in names}
    return Positions(_rotations(dim, pairing, base, rule), tensors, temperature, dim)


def _rotations(dim: int, pairing: str, base: float, rule: Optional[str]) -> Dict[str, Any]:
    from ctranslate2.specs.attention_spec import RotaryScalingType

    return {
        "rotary_dim": dim,
        "rotary_interleave": pairing == "interleaved",
        "rotary_base": base,
        "rotary_scaling_type": RotaryScalingType[rule] if rule else None,
    }


@expresses("shaw", flags=("shaw_max_distance", "shaw_values"))
def shaw(encoding: PositionEncoding, layer: int) -> Positions:
    """Tables for distances from -K to K; in a decoder, rows of future distances are zero."""
    tables = encoding.tables(layer)
    later = len(tables["keys"]) - 1 if encoding.stack.causal else 0

    def padded(name: str) -> np.ndarray:
        table = tables.get(name, torch.zeros_like(tables["keys"]))  # (N, D)
        return torch.cat((table, table.new_zeros(later, table.size(1)))).float().numpy()

    tensors = {f"relative_position_{name}": padded(name) for name in ("keys", "values")}
    return Positions({"relative_position": True}, tensors)


@expresses("t5", "alibi", acts="bias", flags=("t5_num_buckets", "t5_max_distance"))
def bias_by_distance(encoding: PositionEncoding, layer: int) -> Positions:
    """A table with a bucket for every distance up to a limit, and logarithmic buckets beyond it.

    T5's bias is constant from its maximum distance on, so T5's table is exact for every length.
    ALiBi's table is exact for the lengths that the model accepts.
    """
    reach = encoding.constant_from(encoding.stack.max_positions)
    limit = reach if encoding.constant_from(reach + 1) > reach else None
    # per direction: one bucket for each distance below *reach*, then *reach* buckets for the rest
    beyond = [round(reach * 2 ** (row / reach)) for row in range(reach)]
    later = torch.tensor([*range(reach), *beyond])
    distances = -later if encoding.stack.causal else torch.cat((-later, later))
    logits = cast(Tensor, encoding.by_distance(distances))  # (H, buckets)
    tensors = {
        "relative_attention_bias": logits.t().contiguous().numpy(),
        "relative_attention_max_distance": np.dtype("int32").type(2 * reach),
    }
    return Positions({"relative_attention_bias": True}, tensors, exact_below=limit)


def positions_of(attention: Layer, has_table: bool) -> Positions:
    """The positions of a self-attention; *has_table*: whether a table was added to its input."""
    encoding, found = getattr(attention, "encoding", None), Positions()
    if encoding is None:
        return found if has_table else no_rotations()
    for function in dict.fromkeys(EXPRESSIONS[name].positions for name in encoding.name.split("+")):
        found = found.and_also(function(encoding, attention.number))
    return found


def refuse_settings(path: str, kind: Kind, settings: Settings) -> None:
    """Refuse a model whose settings CTranslate2 cannot represent."""
    known = {*_READ, *(_OF_ENCODERS if kind is MASKED else ())}
    known.update(flag for each in EXPRESSIONS.values() for flag in each.flags)
    formats.refuse_inexpressible(
        path, kind.family, settings, formats.Expressible(ENGINE, known, _VALUES)
    )
    cfg = Namespace(**settings)
    for side in SIDES:
        if settings.get("position_encoding") is not None:  # None for fairseq's own models
            own = f"{side}_position_encoding"
            flag = flag_of(own if settings.get(own) else "position_encoding")
            _refuse_encodings(path, flag, side_encoding(cfg, side))


def _refuse_encodings(path: str, flag: str, value: str) -> None:
    """Refuse encodings, and combinations of them, that the engine cannot compute."""
    shown = f"{path}: {flag} {value}: CTranslate2"
    compositions = [names.split("+") for names in dict.fromkeys(parse(value).period)]
    for names in compositions:
        lost = [name for name in names if name not in EXPRESSIONS]
        if lost:
            known = ", ".join(sorted(EXPRESSIONS))
            raise UsageError(f"{shown} cannot compute {lost[0]}; it supports {known}")
        alone = _acting("alone", names)
        if alone and len(names) > 1:
            raise UsageError(
                f"{shown} computes {alone[0]} only by itself; it can combine rotary with "
                f"{' or '.join(_acting('bias', [*EXPRESSIONS]))}"
            )
    with_bias = ["+".join(names) for names in compositions if _acting("bias", names)]
    if len(with_bias) > 1:
        raise UsageError(
            f"{shown} has one bias for all layers of a stack, but {' and '.join(with_bias)} differ"
        )


def _acting(acts: str, names: Sequence[str]) -> List[str]:
    return [name for name in names if EXPRESSIONS[name].acts == acts]
