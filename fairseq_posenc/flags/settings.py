"""Declaration of flags: help, default, range and role, in one place.

The role of a setting decides how it may be used with a trained checkpoint:

=============  ==============================================  ==================================
role           examples                                        consequence
=============  ==============================================  ==================================
``model``      position encoding, number of layers             part of the trained model: cannot be
                                                               overridden, must match when a run
                                                               is resumed, is inherited by
                                                               fine-tuning
``free``       rotary scaling, longest input                   may differ wherever a model is used
``training``   dropout, redrawing random features              belongs to one training run
=============  ==============================================  ==================================

A ``training`` setting can be part of the model if another flag has a certain value: for example,
``--random-positions`` with ``--evaluation-positions spread``.  :func:`role_in` decides.
"""

import dataclasses
import math
import operator
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Union

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.by_layer import number_or_pattern, numbers_by_layer
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import Registry

ROLES = ("model", "free", "training")
Number = Union[int, float]
#: The value of ``exported`` for settings that matter only for speed and memory.
SAME = "the exported model computes the same without it"
#: A number, or the name of the flag whose value is the bound.
Bound = Union[Number, str]
#: Values by flag.  A function returns the values if a registry may still grow; None stands for any
#: value that switches the flag on.
Needs = Mapping[str, Union[Collection[Any], Callable[[], Collection[Any]], None]]


def setting(
    default: Any,  # the value if the user gives none
    help: str,  # the help text; ``{choices}`` and ``{names}`` in it are replaced by these lists
    *,
    role: str = "model",  # one of ROLES
    # the role is ``model`` if one of these flags has one of these values
    model_with: Optional[Mapping[str, Collection[Any]]] = None,
    # the allowed values; may be a registry that still grows
    choices: Optional[Collection[str]] = None,
    # for values known from other software: why they are refused, and what to give instead
    refused: Optional[Mapping[str, str]] = None,
    names: Optional[Collection[str]] = None,  # the names in a composite value
    # inclusive lower bound of the value; a bound is a number, or the name of another flag
    at_least: Optional[Bound] = None,
    above: Optional[Bound] = None,  # exclusive lower bound
    at_most: Optional[Bound] = None,  # inclusive upper bound
    below: Optional[Bound] = None,  # exclusive upper bound
    # the flag has an effect only if one of these flags has one of these values (None: is on);
    # a flag of a registry's entry always needs that entry, so ``needs`` does not name the entry
    needs: Optional[Needs] = None,
    # flags and values; any of them gives the flag an effect even without the registry's entry
    or_with: Optional[Needs] = None,
    # the value is a number, or a pattern of numbers over the layers such as ``9*2,4``; every number
    # has to be in the range
    by_layer: bool = False,
    # maps a value to what a checkpoint stores instead, such as the content of a file
    stored: Optional[Callable[[Any], Any]] = None,
    # values with which one traced graph works for texts of every length, as ONNX needs; a function
    # returns the values if a registry may still grow; None stands for all values
    traceable: Union[Collection[Any], Callable[[], Collection[Any]], None] = None,
    # an export's note on a setting that changes no output for one text: exported models do not
    # have such a setting, and fine-tuning does not inherit it
    exported: Optional[str] = None,
) -> Any:
    """A dataclass field that declares a flag; the field is None until a value is given."""
    metadata = dict(locals())  # all arguments by name
    assert role in ROLES, role
    metadata.update(model_with=model_with or {}, stored=number_or_pattern if by_layer else stored)
    return dataclasses.field(default=None, metadata=metadata)


def role_in(options: Options, metadata: Mapping[str, Any]) -> Optional[str]:
    """The role of a setting under *options*, with which a model is trained or used."""
    model_with = metadata.get("model_with") or {}
    if any(option(options, flag) in values for flag, values in model_with.items()):
        return "model"
    return metadata.get("role")


def help_text(metadata: Mapping[str, Any]) -> str:
    """The help text of a setting, with its choices and its default."""
    text = metadata.get("help") or ""
    for key in ("choices", "names"):
        text = text.replace(f"{{{key}}}", ", ".join(metadata.get(key) or ()))
    default = metadata.get("default")
    return text if default is None else f"{text} (default: {default})"


def check_settings(options: Options, fields: Iterable["dataclasses.Field[Any]"]) -> None:
    """Refuse values outside the choices and ranges that *fields* declare."""
    for field in fields:
        metadata, value = field.metadata, getattr(options, field.name, None)
        # the value of another flag can be a bound that excludes the default
        follows = any(isinstance(metadata.get(key), str) for key in _COMPARE)
        if value is not None and (follows or value != metadata.get("default")):
            check_value(field.name, value, metadata, options)


def check_option(options: Options, name: str, metadata: Mapping[str, Any]) -> None:
    """Check the value of one setting with :func:`check_value`, unless it is None."""
    value = option(options, name)
    if value is not None:
        check_value(name, value, metadata, options)


def check_value(
    name: str, value: Any, metadata: Mapping[str, Any], options: Optional[Options] = None
) -> None:
    """Refuse a *value* outside the choices and the range in *metadata*, see :func:`setting`.

    *options* is the configuration, for bounds that are names of other flags.
    """
    choices = metadata.get("choices")
    if choices is not None and value not in choices:
        reason = (metadata.get("refused") or {}).get(value)
        named = isinstance(choices, Registry)
        known = choices.choices(str(value)) if named else " or ".join(choices)
        raise UsageError(f"{flag_of(name)} {value}: {reason or 'must be ' + known}")
    limits, words = {}, []
    for key in _COMPARE:
        bound = metadata.get(key)
        bound = option(options, bound) if isinstance(bound, str) else bound
        if bound is not None:
            limits[key] = bound
    for number in _numbers(name, value, metadata) if limits else ():
        if math.isfinite(number) and all(_COMPARE[k](number, x) for k, x in limits.items()):
            continue
        for key, limit in limits.items():
            other = f"{flag_of(metadata[key])} " if isinstance(metadata[key], str) else ""
            shown = limit if isinstance(limit, int) else f"{limit:g}"
            words.append(f"{key.replace('_', ' ')} {other}{shown}")
        finite = [] if math.isfinite(number) else ["a finite number"]
        raise UsageError(f"{flag_of(name)} {value}: must be {' and '.join(finite + words)}")


def _numbers(name: str, value: Any, metadata: Mapping[str, Any]) -> List[float]:
    """The number in *value*, or all numbers of its pattern over the layers."""
    if metadata.get("by_layer"):
        return numbers_by_layer(name, value)
    try:
        return [float(value)]
    except (TypeError, ValueError) as error:
        raise UsageError(f"{flag_of(name)} {value}: must be a number") from error


def refuse_empty(name: str, value: object) -> None:
    """Refuse an empty value, such as an unset shell variable, which would select the default."""
    if isinstance(value, str) and not value.strip():
        raise UsageError(f"{flag_of(name)} '': is empty; give a value, or drop the flag")


def refuse_unless_off(options: Options, off: Mapping[str, Any], reason: str) -> None:
    """Refuse flags whose values differ from those in *off*; the message gives the *reason*.

    >>> from argparse import Namespace
    >>> refuse_unless_off(Namespace(shorten_method="None"), {"shorten_method": "none"}, "no effect")
    """
    for name, value in off.items():
        asked = option(options, name)
        if asked is not None and str(asked).lower() != str(value).lower():
            raise UsageError(f"{flag_of(name, asked)}: {reason}; drop it")


_COMPARE: Dict[str, Callable[[Any, Any], bool]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "at_most": operator.le,
    "below": operator.lt,
}
