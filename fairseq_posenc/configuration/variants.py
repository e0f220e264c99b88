"""Funnel encoders, enhanced mask decoders and memories: flags, and which models can have them.

In all three, the keys of a layer come from elsewhere than its queries: from tokens that are not
pooled (Dai, Lai, Yang, Le, arXiv 2006.03236), from the layer below the decoder (He, Liu, Gao, Chen,
arXiv 2006.03654, section 3.2), or from the segment before (Transformer-XL, arXiv 1901.02860).
"""

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

from fairseq_posenc.attention import kernel_of
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import (
    Encoding,
    Stack,
    all_encodings,
    is_relative,
    parse_encodings,
    parse_pattern,
)
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting

#: The task that reads a text in order, as a memory needs it.
MEMORY_TASK = "language_modeling_with_memory"


@dataclass
class SentenceEncoderFlags:
    """The flags of the Funnel encoder and of the enhanced mask decoder."""

    funnel_stages: Optional[str] = setting(
        None,
        "layers of each stage of a Funnel encoder, such as 4,4,4; between stages, the tokens but "
        "[CLS] are pooled by twos",
        role="model",
        traceable=(None,),
    )
    funnel_decoder_layers: Optional[int] = setting(
        2,
        "layers of a Funnel encoder after its last stage is upsampled, for what is predicted for "
        "each token; classifiers of texts do without",
        role="model",
        at_least=0,
        at_most=10_000,
        needs={"funnel_stages": None},
    )
    mask_decoder_layers: Optional[int] = setting(
        0,
        "predict masked tokens by DeBERTa's enhanced mask decoder: learned absolute positions are "
        "added to the input of the last layer, which is applied so many times (2 in the paper)",
        role="model",
        at_least=0,
        at_most=1_000,
    )


def parse_stages(value: str) -> List[int]:
    """The layers of each stage of a Funnel encoder.

    >>> parse_stages("4,4,4")
    [4, 4, 4]

    Raises:
        UsageError: *value* is no list of two or more positive integers.
    """
    parts = [part.strip() for part in str(value).split(",")]
    if len(parts) < 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(
            f"--funnel-stages {value}: must be the layers of two or more stages, such as 4,4,4"
        )
    return [int(part) for part in parts]


def complete_funnel(cfg: Options) -> None:
    """Set the number of layers of a Funnel encoder, in place.

    Args:
        cfg: flat configuration that accepts new entries.

    Raises:
        UsageError: another number was given.
    """
    value = option(cfg, "funnel_stages")
    if value is None:
        return
    decoder = option(cfg, "funnel_decoder_layers")
    layers = sum(parse_stages(value)) + (2 if decoder is None else int(decoder))
    given = option(cfg, "encoder_layers")
    if given not in (None, layers):
        raise UsageError(
            f"--encoder-layers {given}: --funnel-stages {value} and --funnel-decoder-layers have "
            f"{layers}; drop it, or give {layers}"
        )
    cfg.encoder_layers = layers


def check_funnel(cfg: Options) -> None:
    """Refuse attentions, encodings and flags that pooled queries rule out."""
    if cfg.funnel_stages is None:
        return
    given = f"--funnel-stages {cfg.funnel_stages}"
    fixed = "stages have a fixed number of layers"
    why = {
        "causal": "a pooled token would see the later one that it holds",
        "untie_cls": "[CLS] is never pooled, but its logits are those of its position",
        "random_positions": "the positions of pooled tokens follow from those of all tokens",
        "position_ids": "pooled tokens have the positions of those that they hold, in order",
        "encoder_layerdrop": fixed,
        "encoder_layers_to_keep": fixed,
    }
    _refuse(cfg, given, why)
    for encoding in all_encodings(cfg.position_encoding):
        problem = _no_place_in_funnel(encoding, cfg)
        if problem:
            raise UsageError(
                f"{given}: {problem}; give an encoding such as rotary, t5, alibi or transformer_xl"
            )


def _no_place_in_funnel(encoding: Encoding, cfg: Any) -> Optional[str]:
    """Why an encoding has no place in a Funnel encoder, or None."""
    if encoding.content is not None and not encoding.takes_positions:
        return f"{encoding.name} counts the tokens between queries and keys one by one"
    if encoding.input is None and not encoding.is_relative(cfg):
        return f"{encoding.name} knows the positions of tokens, but not of pooled ones"
    values = encoding.transform.changes_values(cfg) if encoding.transform else None
    return values and f"{values} needs the one position of a token, and a pooled token has several"


def check_mask_decoder(cfg: Options) -> None:
    """Refuse attentions and flags that the queries of the decoder rule out."""
    if not cfg.mask_decoder_layers:
        return
    why = {
        "funnel_stages": "a Funnel encoder has layers of its own after its stages",
        "encoder_layerdrop": "the last layer is the decoder, and must not be dropped",
        "encoder_layers_to_keep": "the last layer is the decoder, and must be kept",
        "random_positions": "its table counts positions",
        "causal": "the table counts positions in a text that is seen as a whole",
        "position_ids": "its table counts positions",
    }
    _refuse(cfg, f"--mask-decoder-layers {cfg.mask_decoder_layers}", why)


def check_memory(cfg: Options, stack: Stack, settings: Options, fresh: bool) -> None:
    """Refuse a memory that the model does not support or the task never fills, and the reverse.

    Args:
        settings: the settings of the task, or the parsed command line.
        fresh: whether the model is to be trained, and not loaded from a checkpoint.
    """
    task = option(settings, "task") or option(settings, "_name")
    if not cfg.memory_length:
        if fresh and task == MEMORY_TASK:
            raise UsageError(f"--task {task}: give --memory-length, usually as --tokens-per-sample")
        return
    given = f"--memory-length {cfg.memory_length}"
    why = {
        "decoder_layerdrop": "a memory holds the inputs of all layers, so none may be skipped",
        "position_ids": "a memory holds no tokens from which positions follow",
    }
    _refuse(cfg, given, why)
    for name in dict.fromkeys(parse_pattern(side_encoding(cfg, "decoder"))):
        encodings = parse_encodings(name)
        if is_relative(encodings, cfg, stack):
            continue
        changing = [e.transform.changes_values(cfg) for e in encodings if e.transform]
        absolute = [e.name for e in encodings if not e.is_relative(cfg)]
        what = " and ".join(absolute or [flag for flag in changing if flag] or [name])
        raise UsageError(
            f"{given}: {what} in --position-encoding {name} gives tokens absolute positions, which "
            "those of a segment and of its memory would share; give relative ones alone, such as "
            "rotary, t5, alibi, shaw or transformer_xl"
        )
    if fresh and task != MEMORY_TASK:
        raise UsageError(
            f"{given}: has no effect with --task {task}, which does not read a text in order; drop "
            f"it, or give --task {MEMORY_TASK}"
        )


def _refuse(cfg: Options, given: str, why: Mapping[str, str]) -> None:
    """Refuse attentions with one input for queries and keys, and the flags in *why*.

    Args:
        given: the flag that contradicts them, and its value.
        why: names of settings, and the reason for each.
    """
    if "keys" not in kernel_of(cfg).takes:
        gated = cfg.layer == "gated"
        other = "--layer gated" if gated else f"--attention {cfg.attention}"
        instead = "--layer transformer" if gated else "--attention softmax"
        raise UsageError(f"{given}: {other} has one input for queries and keys; give {instead}")
    for name, reason in why.items():
        value = option(cfg, name)
        if value:
            text = "" if value is True else f" {value}"
            raise UsageError(f"{given}: {reason}; drop {flag_of(name)}{text}")
