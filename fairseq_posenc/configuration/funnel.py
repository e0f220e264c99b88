"""The flags of the Funnel encoder, and which models can have it.

Dai, Lai, Yang, Le, arXiv 2006.03236.
"""

from dataclasses import dataclass
from typing import Any, List, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.contradictions import refuse_flags, refuse_one_input
from fairseq_posenc.encodings import Encoding, all_encodings
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
    """The layers of each stage.

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
    """Refuse attentions, encodings and flags that pooled queries rule out.

    Args:
        cfg: complete configuration of a masked language model.

    Raises:
        UsageError: naming the flag that contradicts ``--funnel-stages``.
    """
    if cfg.funnel_stages is None:
        return
    given = f"--funnel-stages {cfg.funnel_stages}"
    refuse_one_input(cfg, given)
    why = {
        "causal": "a pooled token would see the later one that it holds",
        "untie_cls": "[CLS] is never pooled, but its logits are those of its position",
        "random_positions": "the positions of pooled tokens follow from those of all tokens",
        "encoder_layerdrop": "stages have a fixed number of layers",
        "encoder_layers_to_keep": "stages have a fixed number of layers",
    }
    refuse_flags(cfg, given, why)
    for encoding in all_encodings(cfg.position_encoding):
        problem = _problem(encoding, cfg)
        if problem:
            raise UsageError(
                f"{given}: {problem}; give an encoding such as rotary, t5, alibi or transformer_xl"
            )


def _problem(encoding: Encoding, cfg: Any) -> Optional[str]:
    """Why an encoding has no place in a Funnel encoder, or None."""
    if encoding.content is not None and not encoding.content.takes_steps:
        return f"{encoding.name} counts the tokens between queries and keys one by one"
    if encoding.input is None and not encoding.relative:
        return f"{encoding.name} knows the positions of tokens, but not of pooled ones"
    values = encoding.transform.changes_values(cfg) if encoding.transform else None
    return values and f"{values} needs the one position of a token, and a pooled token has several"
