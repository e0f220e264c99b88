"""Training in stages of different lengths (RoFormer Table 4: 512, 1536, 256, 128, 1536, 512).

A model without a table of positions accepts any length, and keeps the longest of its stages as the
length in training, whichever stage was the last.
"""

from typing import Any, Mapping

from fairseq_posenc.configuration.resolve import open_config
from fairseq_posenc.encodings import all_encodings
from fairseq_posenc.flags.options import Layer, Options, option

#: settings that only say how long the sequences of training were
LENGTHS = ("rotary_original_length", "num_positions")


def accepts_any_length(model: Options) -> bool:
    """True if the settings are of a model without a table of positions."""
    return not any(encoding.bounded for encoding in all_encodings(model.position_encoding))


def keep_longest(model: Layer, settings: Options, saved: Mapping[str, Any]) -> None:
    """Continue with the longest length so far as the length in training, in place.

    Args:
        model: the model being trained.
        settings: its settings, which later checkpoints store.
        saved: those of the checkpoint that it continues from.
    """
    same = saved.get("position_encoding") == settings.position_encoding
    if not same or not accepts_any_length(settings):
        return
    with open_config(settings):
        for name in LENGTHS:
            lengths = [n for n in (saved.get(name), option(settings, name)) if n is not None]
            if option(settings, name) is not None:
                setattr(settings, name, max(lengths))
    for module in model.modules():
        if hasattr(module, "set_trained_length"):
            module.set_trained_length(settings.rotary_original_length)
