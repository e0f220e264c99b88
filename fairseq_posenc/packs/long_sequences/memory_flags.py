"""The flag of segment-level recurrence, and which models can have it."""

from dataclasses import dataclass, replace
from typing import Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import (
    Completed,
    refuse_flags,
    refuse_one_input,
    register_feature,
)
from fairseq_posenc.encodings import Stack, is_relative
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting

#: The task that reads a text in order, which a memory needs.
TASK = "language_modeling_with_memory"


@dataclass
class MemoryFlags:
    """The flag of segment-level recurrence."""

    memory_length: Optional[int] = setting(
        0,
        "tokens of earlier segments that every layer attends to, for --task "
        "language_modeling_with_memory; 0 for none",
        role="free",
        at_least=0,
        at_most=2**31 - 1,
    )


def _length_with_memory(cfg: Options, length: int) -> int:
    return length + int(option(cfg, "memory_length") or 0)


def _stack_with_memory(cfg: Options, stack: Stack) -> Stack:
    return replace(stack, max_positions=_length_with_memory(cfg, stack.max_positions))


def check_memory(completed: Completed) -> None:
    """Refuse a memory that model or task do not support, and the task without a memory."""
    cfg, task, (stack,) = completed.cfg, completed.task, completed.stacks
    if not cfg.memory_length:
        if completed.fresh and task == TASK:
            raise UsageError(f"--task {task}: give --memory-length, usually as --tokens-per-sample")
        return
    flag = f"--memory-length {cfg.memory_length}"
    why = {
        "decoder_layerdrop": "a memory holds the inputs of all layers, so none may be skipped",
        "position_ids": "a memory holds no tokens from which positions follow",
    }
    refuse_one_input(cfg, flag)
    refuse_flags(cfg, flag, why)
    for name, encodings in completed.patterns[stack.side].compositions.items():
        if is_relative(encodings, cfg, stack):
            continue
        changing = [e.transform.changes_values(cfg) for e in encodings if e.transform]
        absolute = [e.name for e in encodings if not e.is_relative(cfg)]
        what = " and ".join(absolute or [f for f in changing if f] or [name])
        raise UsageError(
            f"{flag}: {what} in --position-encoding {name} gives tokens absolute positions, which "
            "those of a segment and of its memory would share; give relative ones alone, such as "
            "rotary, t5, alibi, shaw or transformer_xl"
        )
    if completed.fresh and task != TASK:
        raise UsageError(
            f"{flag}: has no effect with --task {task}, which does not read a text in order; drop "
            f"it, or give --task {TASK}"
        )


register_feature(
    MemoryFlags,
    models=["posenc_lm"],
    stack=_stack_with_memory,
    trained_length=_length_with_memory,
    check=check_memory,
)
