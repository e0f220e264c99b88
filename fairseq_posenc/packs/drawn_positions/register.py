"""Importing this registers random positions, and rules for texts of segments and numbers."""

from fairseq_posenc.configuration.features import register_feature
from fairseq_posenc.packs.drawn_positions import rules  # noqa: F401 - importing registers
from fairseq_posenc.packs.drawn_positions.flags import DrawnFlags, check_drawn, trained_length
from fairseq_posenc.packs.drawn_positions.samplers import SAMPLERS

register_feature(
    DrawnFlags, registries=[SAMPLERS], trained_length=trained_length, check=check_drawn
)
