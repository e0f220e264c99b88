"""Checks of ``--memory-length``: which models and tasks can have a memory."""

from typing import Any

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.contradictions import refuse_one_input
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import Stack, is_relative, parse_encodings, parse_pattern
from fairseq_posenc.flags.options import Options, option

#: The task that reads a text in order.
TASK = "language_modeling_with_memory"


def check_memory(cfg: Options, stack: Stack) -> None:
    """Refuse a memory that the attention, the layers or the encodings do not support.

    Args:
        cfg: complete configuration of a language model.
        stack: its stack.

    Raises:
        UsageError: naming the flag that contradicts ``--memory-length``.
    """
    if not cfg.memory_length:
        return
    given = f"--memory-length {cfg.memory_length}"
    refuse_one_input(cfg, given)
    if cfg.decoder_layerdrop:
        raise UsageError(
            f"{given}: --decoder-layerdrop {cfg.decoder_layerdrop} skips layers, whose inputs the "
            "memory holds; drop one of the two"
        )
    for name in dict.fromkeys(parse_pattern(side_encoding(cfg, "decoder"))):
        encodings = parse_encodings(name)
        if is_relative(encodings, cfg, stack):
            continue
        absolute = [e.name for e in encodings if not e.relative]
        what = " and ".join(absolute) or _changing_values(cfg, name)
        raise UsageError(
            f"{given}: {what} in --position-encoding {name} gives tokens absolute positions, which "
            "those of a segment and of its memory would share; give relative ones alone, such as "
            "rotary, t5, alibi, shaw or transformer_xl"
        )


def _changing_values(cfg: Options, name: str) -> str:
    """The flag that makes a relative transform absolute."""
    flags = [e.transform.changes_values(cfg) for e in parse_encodings(name) if e.transform]
    return next((flag for flag in flags if flag), name)


def check_memory_task(cfg: Options, settings: Any) -> None:
    """Refuse a memory that the task never fills, and a task that fills none.

    Args:
        cfg: complete configuration of a language model that is to be trained.
        settings: the settings of the task, or the parsed command line.

    Raises:
        UsageError: naming the flag to give or to drop.
    """
    task = option(settings, "task") or option(settings, "_name")
    if cfg.memory_length and task != TASK:
        raise UsageError(
            f"--memory-length {cfg.memory_length}: has no effect with --task {task}, which does "
            f"not read a text in order; drop it, or give --task {TASK}"
        )
    if task == TASK and not cfg.memory_length:
        raise UsageError(f"--task {TASK}: give --memory-length, usually as --tokens-per-sample")
