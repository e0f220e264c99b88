"""The flags of the Funnel encoder, and which models can have one."""

from dataclasses import dataclass
from typing import Any, List, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import (
    Completed,
    refuse_flags,
    refuse_one_input,
    register_feature,
)
from fairseq_posenc.encodings import Encoding
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting


@dataclass
class FunnelFlags:
    """The flags of the Funnel encoder."""

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
    """Fill in the number of layers of a Funnel encoder, in place.

    Args:
        cfg: flat configuration that accepts new entries.

    Raises:
        UsageError: the flag has another number.
    """
    value = option(cfg, "funnel_stages")
    if value is None:
        return
    decoder = option(cfg, "funnel_decoder_layers")
    layers = sum(parse_stages(value)) + (2 if decoder is None else int(decoder))
    number = option(cfg, "encoder_layers")
    if number not in (None, layers):
        raise UsageError(
            f"--encoder-layers {number}: --funnel-stages {value} and --funnel-decoder-layers have "
            f"{layers}; drop it, or give {layers}"
        )
    cfg.encoder_layers = layers


def check_funnel(completed: Completed) -> None:
    """Refuse attentions, encodings and flags that do not support pooled queries."""
    cfg = completed.cfg
    if cfg.funnel_stages is None:
        return
    flag = f"--funnel-stages {cfg.funnel_stages}"
    fixed = "stages have a fixed number of layers"
    why = {
        "causal": "a pooled token would see the later one that it holds",
        "untie_cls": "[CLS] is never pooled, but its logits are those of its position",
        "random_positions": "the positions of pooled tokens follow from those of all tokens",
        "position_ids": "pooled tokens have the positions of those that they hold, in order",
        "encoder_layerdrop": fixed,
        "encoder_layers_to_keep": fixed,
        "mask_decoder_layers": "a Funnel encoder has layers of its own after its stages",
    }
    refuse_one_input(cfg, flag)
    refuse_flags(cfg, flag, why)
    for encoding in completed.patterns["encoder"].encodings:
        problem = _no_place_in_funnel(encoding, cfg)
        if problem:
            raise UsageError(
                f"{flag}: {problem}; give an encoding such as rotary, t5, alibi or transformer_xl"
            )


def _no_place_in_funnel(encoding: Encoding, cfg: Any) -> Optional[str]:
    """Why a Funnel encoder does not support an encoding, or None."""
    if encoding.content is not None and not encoding.takes_positions:
        return f"{encoding.name} counts the tokens between queries and keys one by one"
    if encoding.input is None and not encoding.is_relative(cfg):
        return f"{encoding.name} knows the positions of tokens, but not of pooled ones"
    values = encoding.transform.changes_values(cfg) if encoding.transform else None
    return values and f"{values} needs the one position of a token, and a pooled token has several"


register_feature(
    FunnelFlags, models=["posenc_masked_lm"], complete=complete_funnel, check=check_funnel
)
