"""What a foreign format cannot express, from the roles of settings."""

import dataclasses
from typing import Collection, List

from fairseq_posenc.config.fields import defaults_of, plug_in_flags
from fairseq_posenc.convert.native import NativeCheckpoint, Settings
from fairseq_posenc.errors import UsageError, flag_of
from fairseq_posenc.models.masked_lm import MASKED_LM


def computing_settings() -> List[str]:
    """The settings on which the outputs of a trained model depend.

    All that are part of the trained model and, of those that may differ at use, the plug-in's own:
    a checkpoint with ``--rotary-scaling`` computes scaled frequencies.
    """
    own = plug_in_flags()
    return [
        field.name
        for field in dataclasses.fields(MASKED_LM.dataclass)
        if field.metadata.get("role") == "model"
        or (field.metadata.get("role") == "free" and field.name in own)
    ]


def refuse_inexpressible(
    checkpoint: NativeCheckpoint, returned: Settings, adapted: Collection[str], target: str
) -> None:
    """Refuse a checkpoint that would not be the same model after export and import.

    Flags that are registered later are compared as well, so that none is dropped silently.

    Args:
        checkpoint: what is to be exported.
        returned: settings that importing the exported model gives.
        adapted: names of settings that may differ, since the export takes care of them.
        target: what the model is exported to, for the message.

    Raises:
        UsageError: naming the flags whose values would be lost, and what there is instead.
    """
    settings = checkpoint.settings
    expressed = {**defaults_of(MASKED_LM.dataclass), **returned}
    lost = [
        name
        for name in computing_settings()
        if name not in adapted and settings[name] != expressed[name]
    ]
    if lost:
        given = ", ".join(f"{flag_of(name)} {settings[name]}" for name in lost)
        known = ", ".join(str(expressed[name]) for name in lost)
        raise UsageError(
            f"{checkpoint.path}: was trained with {given}, and {target} has only {known}"
        )
