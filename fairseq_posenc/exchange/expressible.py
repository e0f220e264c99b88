"""Settings that a format can express, and the refusal of all others by name.

A setting with the role ``model`` is refused unless a format lists it, so a flag that is added later
is refused until somebody lists it.
"""

import dataclasses
from typing import Any, Collection, Dict, List, Mapping, NamedTuple

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.models.family import Family


class Expressible(NamedTuple):
    """What a format can express.

    Args:
        target: the format, for messages.
        any: names of settings whose values are all expressed, or have no effect there.
        values: for other settings the values that are expressed; of the rest, the defaults are.
    """

    target: str
    any: Collection[str]
    values: Mapping[str, Collection[Any]]


def computing_settings(family: Family) -> List["dataclasses.Field[Any]"]:
    """The settings on which the outputs of a trained model depend.

    These are the settings with the role ``model``, and the plug-in's with the role ``free``: a
    checkpoint with ``--rotary-scaling`` computes scaled frequencies.
    """
    own = plug_in_flags()
    return [
        field
        for field in dataclasses.fields(family.dataclass)
        if field.metadata.get("role") == "model"
        or (field.metadata.get("role") == "free" and field.name in own)
    ]


def inexpressible(
    family: Family, settings: Mapping[str, Any], expressible: Expressible
) -> Dict[str, Collection[Any]]:
    """The settings with values that a format cannot express, and the values that it can.

    Args:
        family: declares the settings.
        settings: complete, by name.
        expressible: what the format can express.
    """
    lost = {}
    for field in computing_settings(family):
        name, default = field.name, field.metadata.get("default")
        known = expressible.values.get(name, (default,))
        if name not in expressible.any and settings.get(name, default) not in known:
            lost[name] = known
    return lost


def refuse_inexpressible(
    path: str, family: Family, settings: Mapping[str, Any], expressible: Expressible
) -> None:
    """Refuse a checkpoint whose conversion would change what it computes.

    Flags registered by other packages are compared as well, so that none is dropped silently.

    Args:
        path: the checkpoint, for the message; the others as for :func:`inexpressible`.

    Raises:
        UsageError: naming the flags whose values would be lost, and the values supported.
    """
    lost = inexpressible(family, settings, expressible)
    if lost:
        given = ", ".join(f"{flag_of(name)} {settings[name]}" for name in lost)
        known = ", ".join(" or ".join(map(str, values)) for values in lost.values())
        raise UsageError(
            f"{path}: was trained with {given}, but {expressible.target} only supports {known}; "
            "nothing was written"
        )
