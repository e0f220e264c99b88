"""How a flag is declared: help, default, range and role, once, in the dataclass that holds it.

Every setting has a role, which decides what a checkpoint allows:

=============  ==============================================  ==================================
role           examples                                        what follows
=============  ==============================================  ==================================
``model``      position encoding, number of layers             part of the trained model: cannot be
                                                               overridden, has to agree when a
                                                               training is resumed, is inherited
                                                               by fine-tuning
``free``       rotary scaling, longest input                   may differ wherever a model is used
``training``   dropout, redrawing random features              belongs to one training run
=============  ==============================================  ==================================
"""

import dataclasses
import math
from typing import Any, Collection, Dict, Iterable, Mapping, Optional, Union

from fairseq_posenc.errors import UsageError, flag_of

ROLES = ("model", "free", "training")
Number = Union[int, float]


def setting(
    default: Any,
    help: str,
    *,
    role: str,
    choices: Optional[Collection[str]] = None,
    names: Optional[Collection[str]] = None,
    at_least: Optional[Number] = None,
    above: Optional[Number] = None,
    at_most: Optional[Number] = None,
    formerly: Optional[str] = None,
    former_values: Optional[Mapping[str, str]] = None,
) -> Any:
    """A dataclass field for a flag that is None until it is given.

    Args:
        default: what it is if nobody gives it.
        help: help text; ``{choices}`` and ``{names}`` in it become lists of these.
        role: one of :data:`ROLES`.
        choices: the values allowed; a registry may grow until the flags are read.
        names: what the value is made of, where it is more than one choice.
        at_least: least value of a number.
        above: number that the value has to exceed.
        at_most: greatest value.
        formerly: an older name of the flag, in command lines and checkpoints.
        former_values: older names of its values.
    """
    assert role in ROLES, role
    metadata = {
        "help": help,
        "default": default,
        "role": role,
        "choices": choices,
        "names": names,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "formerly": formerly,
        "former_values": former_values or {},
    }
    return dataclasses.field(default=None, metadata=metadata)


def help_text(metadata: Mapping[str, Any]) -> str:
    """The help text of a setting, with its choices and its default."""
    text = metadata.get("help") or ""
    for key in ("choices", "names"):
        text = text.replace(f"{{{key}}}", ", ".join(metadata.get(key) or ()))
    default = metadata.get("default")
    return text if default is None else f"{text} (default: {default})"


def check_settings(options: Any, fields: Iterable["dataclasses.Field[Any]"]) -> None:
    """Refuse values outside the declared choices and ranges.

    Args:
        options: the model configuration.
        fields: declarations made by :func:`setting`.

    Raises:
        UsageError: naming the first flag whose value is out of range.
    """
    for field in fields:
        value = getattr(options, field.name, None)
        if value is not None:
            _check_value(field.name, value, field.metadata)


def _check_value(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    choices = metadata.get("choices")
    if choices is not None and value not in choices:
        raise UsageError(f"{flag_of(name)} {value}: must be {' or '.join(choices)}")
    bounds = _bounds(metadata)
    if not bounds:
        return
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{flag_of(name)} {value}: must be a number") from error
    if not (math.isfinite(number) and all(_COMPARE[key](number, b) for key, b in bounds.items())):
        wanted = " and ".join(f"{_WORDS[key]} {bound:g}" for key, bound in bounds.items())
        finite = "" if math.isfinite(number) else "a finite number, "
        raise UsageError(f"{flag_of(name)} {value}: must be {finite}{wanted}")


_WORDS = {"above": "above", "at_least": "at least", "at_most": "at most"}
_COMPARE = {
    "above": lambda number, bound: number > bound,
    "at_least": lambda number, bound: number >= bound,
    "at_most": lambda number, bound: number <= bound,
}


def _bounds(metadata: Mapping[str, Any]) -> Dict[str, Number]:
    return {key: metadata[key] for key in _WORDS if metadata.get(key) is not None}


def modernised(settings: Mapping[str, Any], fields: Iterable["dataclasses.Field[Any]"]) -> Any:
    """Settings of an older checkpoint or command line under today's names and values.

    Args:
        settings: values by name.
        fields: today's declarations.

    Returns:
        a dictionary of what changes: new names with their values, and old names with None.
    """
    changes: Dict[str, Any] = {}
    for field in fields:
        old, values = field.metadata.get("formerly"), field.metadata.get("former_values") or {}
        if old and settings.get(old) is not None:
            changes[old] = None
            if settings.get(field.name) is None:
                changes[field.name] = settings[old]
        value = changes.get(field.name, settings.get(field.name))
        if isinstance(value, str) and value in values:
            changes[field.name] = values[value]
    return changes
