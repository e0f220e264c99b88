"""``--attention``: which self-attention the layers of a Transformer have, and what it can serve."""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional

import torch

from fairseq_posenc.attention.feature_maps import FAVOR_KERNELS, FEATURE_MAPS
from fairseq_posenc.attention.linear import LinearAttention
from fairseq_posenc.attention.multihead import MultiheadAttention
from fairseq_posenc.encodings import parse_encodings
from fairseq_posenc.errors import UsageError, flag_of

ROTATIONS = ("features", "inputs")
# class of the layer, by --attention
ATTENTIONS: Dict[str, Any] = {
    "softmax": MultiheadAttention,
    **dict.fromkeys(FEATURE_MAPS, LinearAttention),
}


@dataclass
class AttentionFlags:
    """Flags of self-attention."""

    attention: Optional[str] = field(
        default=None,
        metadata={
            "help": f"self-attention: {', '.join(ATTENTIONS)}; all but softmax are linear in the "
            "length (elu+1; softmax of queries and of keys; FAVOR+ of the Performer), and "
            "--attention-dropout drops keys there, for all queries of a head. Attention to the "
            "source is always softmax",
            "default": "softmax",
        },
    )
    linear_rotary: Optional[str] = field(
        default=None,
        metadata={
            "help": "what rotary turns in linear attention: features, in the numerator alone "
            "(RoFormer Eq. 11), or inputs, that is queries and keys before the feature map",
            "default": "features",
        },
    )
    linear_epsilon: Optional[float] = field(
        default=None,
        metadata={"help": "least denominator in linear attention", "default": 1e-9},
    )
    favor_kernel: Optional[str] = field(
        default=None,
        metadata={
            "help": "of --attention favor: softmax, exp(ω·x - |x|²/2), or relu, relu(ω·x)",
            "default": "softmax",
        },
    )
    favor_features: Optional[int] = field(
        default=None,
        metadata={
            "help": "random features of a head (default: D ln D for heads of D channels, rounded "
            "down to an even number)",
            "default": None,
        },
    )
    favor_epsilon: Optional[float] = field(
        default=None,
        metadata={
            "help": "added to every feature of --attention favor (default: "
            + ", ".join(f"{value:g} for {name}" for name, value in FAVOR_KERNELS.items())
            + "); with 0 the longest queries and keys of the softmax kernel have features, too",
            "default": None,
        },
    )
    favor_seed: Optional[int] = field(
        default=None, metadata={"help": "of the random features", "default": 1}
    )
    favor_redraw: Optional[int] = field(
        default=None,
        metadata={
            "help": "draw the random features anew every so many updates; 0 for never. "
            "Checkpoints between which that happened cannot be averaged, and a run that starts "
            "from another one draws its own at once",
            "default": 0,
        },
    )
    favor_redraw_until: Optional[int] = field(
        default=None,
        metadata={"help": "last update at which they are drawn anew; 0 for no end", "default": 0},
    )


def feature_size(options: Any, head_dim: int) -> int:
    """How many channels of a head the position encoding of a stack acts on.

    Args:
        options: the model configuration.
        head_dim: D.
    """
    if options.attention not in FEATURE_MAPS or options.linear_rotary == "inputs":
        return head_dim
    return FEATURE_MAPS[options.attention].size(head_dim, options)


def keeps_products(options: Any) -> bool:
    """Whether what turns q and k alike shows in their distance alone.

    A feature map between the turn and the product spoils that.
    """
    return options.attention == "softmax" or options.linear_rotary == "features"


def check_attention(options: Any) -> None:
    """Refuse unknown values of the flags, and what linear attention has no place for.

    Raises:
        UsageError: naming the flag.
    """
    for name, known in (
        ("attention", tuple(ATTENTIONS)),
        ("linear_rotary", ROTATIONS),
        ("favor_kernel", tuple(FAVOR_KERNELS)),
    ):
        value = getattr(options, name)
        if value not in known:
            raise UsageError(f"{flag_of(name)} {value}: must be {' or '.join(known)}")
    for name in ("favor_redraw", "favor_redraw_until", "favor_epsilon"):
        value = getattr(options, name)
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{flag_of(name)} {value}: must be 0 or more")
    least = torch.finfo(torch.float32).tiny
    if not least <= options.linear_epsilon < float("inf"):
        raise UsageError(
            f"--linear-epsilon {options.linear_epsilon:g}: must be above 0, also in float32; give "
            f"{least:.2g} or more"
        )
    if options.favor_redraw_until and options.favor_redraw_until < options.favor_redraw:
        raise UsageError(
            f"--favor-redraw-until {options.favor_redraw_until}: is before the first of them, at "
            f"update {options.favor_redraw}; give a later one, or --favor-redraw 0"
        )
    if options.favor_features is not None and options.favor_features < 1:
        raise UsageError(f"--favor-features {options.favor_features}: must be at least 1")
    if options.attention == "softmax":
        return
    kind = f"--attention {options.attention}"
    if options.layer == "gated":
        raise UsageError(
            f"{kind}: gated attention units have an attention of their own; drop it, or "
            "--layer gated"
        )
    _check_encodings(kind, options)
    if options.favor_redraw and getattr(options, "store_ema", False):
        raise UsageError(
            f"--favor-redraw {options.favor_redraw}: --store-ema would average the random features "
            "of different draws; drop one of the two"
        )


def _check_encodings(kind: str, options: Any) -> None:
    for encoding in parse_encodings(options.position_encoding):
        turns = encoding.query_key is None or getattr(encoding.query_key, "keeps_norm", False)
        if encoding.shared or encoding.layer or not turns:
            raise UsageError(
                f"{kind}: --position-encoding {encoding.name} adds to logits, which linear "
                "attention never computes; give rotary, sinusoidal, learned or none"
            )
        if encoding.query_key is not None and options.linear_rotary == "features":
            _check_rotated_features(kind, options)


def _check_rotated_features(kind: str, options: Any) -> None:
    inputs = "give --linear-rotary inputs, or"
    if options.rotary_value:
        raise UsageError(
            f"--rotary-value: with {kind} it is features that are rotated, and values have none; "
            f"{inputs} drop the flag"
        )
    if options.rotary_scaling == "yarn":
        raise UsageError(
            f"--rotary-scaling yarn: its temperature is one of logits, which {kind} with rotated "
            f"features has none of; {inputs} linear or ntk"
        )
    if options.attention == "favor" and (options.favor_features or 0) % 2:
        raise UsageError(
            f"--favor-features {options.favor_features}: rotary turns pairs of them; {inputs} an "
            "even number"
        )
