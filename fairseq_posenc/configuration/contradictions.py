"""Refusals that several flags have in common."""

from typing import Mapping

from fairseq_posenc.attention import kernel_of
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import Options, option


def refuse_one_input(cfg: Options, given: str) -> None:
    """Refuse attentions whose keys cannot come from elsewhere than their queries.

    Args:
        cfg: complete configuration.
        given: the flag that needs it, and its value.

    Raises:
        UsageError: naming the attention.
    """
    if kernel_of(cfg).abilities_for(cfg).takes_keys:
        return
    gated = cfg.layer == "gated"
    other = "--layer gated" if gated else f"--attention {cfg.attention}"
    instead = "--layer transformer" if gated else "--attention softmax"
    raise UsageError(f"{given}: {other} has one input for queries and keys; give {instead}")


def refuse_flags(cfg: Options, given: str, why: Mapping[str, str]) -> None:
    """Refuse settings that another flag rules out.

    Args:
        cfg: complete configuration.
        given: that flag, and its value.
        why: names of settings, and the reason for each.

    Raises:
        UsageError: naming the first of them that is set.
    """
    for name, reason in why.items():
        value = option(cfg, name)
        if value:
            text = "" if value is True else f" {value}"
            raise UsageError(f"{given}: {reason}; drop {flag_of(name)}{text}")
