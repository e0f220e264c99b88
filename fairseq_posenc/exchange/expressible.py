"""Settings that a foreign format cannot express, from their roles."""

import dataclasses
from typing import Collection, List

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.fields import defaults_of, plug_in_flags
from fairseq_posenc.exchange.kinds import MASKED, Kind, Settings
from fairseq_posenc.exchange.native import NativeCheckpoint


def computing_settings(kind: Kind = MASKED) -> List[str]:
    """The settings on which the outputs of a trained model of *kind* depend.

    These are the settings with the role ``model``, and the plug-in's settings with the role
    ``free``: a checkpoint with ``--rotary-scaling`` computes scaled frequencies.
    """
    own = plug_in_flags()
    return [
        field.name
        for field in dataclasses.fields(kind.family.dataclass)
        if field.metadata.get("role") == "model"
        or (field.metadata.get("role") == "free" and field.name in own)
    ]


def refuse_inexpressible(
    checkpoint: NativeCheckpoint, returned: Settings, adapted: Collection[str], target: str
) -> None:
    """Refuse a checkpoint that export and import would change.

    Flags registered by other packages are compared as well, so that none is dropped silently.

    Args:
        checkpoint: the checkpoint to export.
        returned: the settings after importing the exported model.
        adapted: names of settings that may differ because the export converts them.
        target: the format, for the error message.

    Raises:
        UsageError: naming the flags whose values would be lost, and the values supported.
    """
    settings = checkpoint.settings
    expressed = {**defaults_of(checkpoint.kind.family.dataclass), **returned}
    lost = [
        name
        for name in computing_settings(checkpoint.kind)
        if name not in adapted and settings[name] != expressed[name]
    ]
    if lost:
        given = ", ".join(f"{flag_of(name)} {settings[name]}" for name in lost)
        known = ", ".join(str(expressed[name]) for name in lost)
        raise UsageError(
            f"{checkpoint.path}: was trained with {given}, but {target} only supports {known}"
        )
