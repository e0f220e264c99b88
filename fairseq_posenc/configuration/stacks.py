"""The stacks that a configuration describes, as position encodings see them."""

from typing import List

from fairseq_posenc.attention import kernel_of
from fairseq_posenc.configuration.features import FEATURES
from fairseq_posenc.encodings import Stack
from fairseq_posenc.flags.options import SIDES, Options, option


def side_encoding(cfg: Options, side: str) -> str:
    """The position encoding of one *side*: that of its own flag, else ``--position-encoding``."""
    return option(cfg, f"{side}_position_encoding") or cfg.position_encoding


def make_stack(cfg: Options, side: str, causal: bool, max_positions: int, has_cls: bool) -> Stack:
    """A :class:`Stack` with the heads of the self-attention that *cfg* selects.

    Args:
        cfg: model configuration, flat or nested with the flat one's attributes, complete.
        side: encoder or decoder.
        causal: whether later keys are hidden.
        max_positions: longest sequence, in tokens; features may add to it.
        has_cls: whether the input starts with [CLS].
    """
    kernel = kernel_of(cfg)
    heads, size = kernel.heads(cfg, side)
    flags, relative = kernel.size_flags(cfg, side), kernel.relative_after_rotation(cfg)
    channels = option(cfg, f"{side}_embed_dim")
    stack = Stack(side, heads, size, causal, max_positions, has_cls, relative, flags, channels)
    for feature in FEATURES:
        stack = feature.stack(cfg, stack) if feature.stack else stack
    return stack


def stack_of(cfg: Options, side: str) -> Stack:
    """The encoder or decoder of a translation or language model."""
    if side == "encoder":
        return make_stack(cfg, side, False, cfg.max_source_positions, has_cls=False)
    return make_stack(cfg, side, True, cfg.max_target_positions, has_cls=False)


def masked_lm_stack(cfg: Options) -> Stack:
    """The encoder of a masked language model: its input starts with [CLS]."""
    return make_stack(cfg, "encoder", bool(cfg.causal), cfg.num_positions, has_cls=True)


def translation_stacks(cfg: Options) -> List[Stack]:
    """The stacks of an encoder-decoder."""
    return [stack_of(cfg, side) for side in SIDES]
