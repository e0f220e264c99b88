"""The stacks that a configuration describes, as position encodings see them."""

from typing import List

from fairseq_posenc.attention import kernel_of
from fairseq_posenc.configuration.features import FEATURES
from fairseq_posenc.encodings import Stack
from fairseq_posenc.flags.options import SIDES, Options, option


def side_encoding(cfg: Options, side: str) -> str:
    """The position encoding of one *side*: that of its own flag, else ``--position-encoding``."""
    return option(cfg, f"{side}_position_encoding") or cfg.position_encoding


def stack_of(cfg: Options, side: str) -> Stack:
    """The encoder or decoder of a translation or language model; *cfg* is complete."""
    longest = cfg.max_source_positions if side == "encoder" else cfg.max_target_positions
    return _stack(cfg, side, side == "decoder", longest, False)


def masked_lm_stack(cfg: Options) -> Stack:
    """The encoder of a masked language model: its input starts with [CLS]."""
    return _stack(cfg, "encoder", bool(cfg.causal), cfg.num_positions, True)


def translation_stacks(cfg: Options) -> List[Stack]:
    """The stacks of an encoder-decoder."""
    return [stack_of(cfg, side) for side in SIDES]


def _stack(cfg: Options, side: str, causal: bool, max_positions: int, has_cls: bool) -> Stack:
    """A stack with the heads of the self-attention that *cfg* selects, as features change it."""
    kernel = kernel_of(cfg)
    heads, size = kernel.heads(cfg, side)
    flags, relative = kernel.size_flags(cfg, side), kernel.relative_after_rotation(cfg)
    channels = option(cfg, f"{side}_embed_dim")
    stack = Stack(side, heads, size, causal, max_positions, has_cls, relative, flags, channels)
    for feature in FEATURES:
        stack = feature.stack(cfg, stack) if feature.stack else stack
    return stack
