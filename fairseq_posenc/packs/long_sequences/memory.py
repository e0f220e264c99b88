"""Segment-level recurrence: states of earlier segments as further keys and values.

Transformer-XL, Dai et al., arXiv 1901.02860, section 3.2.  A text is read in segments of T tokens.
The self-attention of layer n attends to the inputs h of its segment and to the inputs m of up to N
earlier tokens; m gets no gradient (SG):

    q = h W_q,   k, v = [SG(m) ∘ h] W_k, [SG(m) ∘ h] W_v

A forward pass takes the memory as an argument, and returns the memory for the next segment.
"""

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import (
    Completed,
    refuse_flags,
    refuse_one_input,
    register_feature,
)
from fairseq_posenc.encodings import Stack, is_relative
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models.language_model import LanguageModelDecoder
from fairseq_posenc.stacks.decoder import EncoderOut

#: The task that reads a text in order, as a memory requires.
TASK = "language_modeling_with_memory"


@dataclass
class MemoryFlags:
    """The flag of segment-level recurrence."""

    memory_length: Optional[int] = setting(
        0,
        "number of tokens of earlier segments that every layer attends to, for --task "
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
    """Refuse a memory that the model or task does not support, and the task without a memory."""
    cfg, task, (stack,) = completed.cfg, completed.task, completed.stacks
    if not cfg.memory_length:
        if completed.fresh and task == TASK:
            raise UsageError(
                f"--task {task}: give --memory-length, usually the value of --tokens-per-sample"
            )
        return
    flag = f"--memory-length {cfg.memory_length}"
    why = {
        "decoder_layerdrop": "a memory holds the inputs of all layers, so no layer may be skipped",
        "position_ids": "a memory holds no tokens, so a rule cannot give it positions",
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
            f"{flag}: {what} in --position-encoding {name} gives tokens absolute positions, so a "
            "segment and its memory would share them; give only relative encodings, such as "
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


#: The inputs of every layer for M earlier tokens, (B, M, C) each; empty at the first segment.
Memory = List[Tensor]


def moved_on(memory: Memory, inputs: List[Tensor], length: int) -> Memory:
    """The memory for the next segment: the last tokens of *memory* and *inputs*, detached.

    >>> first = moved_on([], [torch.arange(3.0).view(1, 3, 1)], length=4)
    >>> moved_on(first, [torch.arange(3.0, 5).view(1, 2, 1)], length=4)[0].flatten()
    tensor([1., 2., 3., 4.])

    *inputs* are the layers' inputs in this segment, (B, T, C) each; N = *length* tokens are kept.
    """
    if length == 0:
        return []
    last = [x[:, -length:].detach() for x in inputs]
    if not memory:
        return [x.clone() for x in last]  # a view would keep the whole tensor
    kept = max(0, min(memory[0].size(1), length - inputs[0].size(1)))
    # a memory from a checkpoint is on the CPU
    return [torch.cat((m[:, m.size(1) - kept :].to(x), x), dim=1) for m, x in zip(memory, last)]


@register_replacement("memory_length", of=LanguageModelDecoder)
class MemoryDecoder(LanguageModelDecoder):
    """Decoder that takes a memory and returns the memory for the next segment.

    Arguments are those of the base class.
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.memory_length = int(cfg.memory_length)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut = None,
        incremental_state: IncrementalState = None,
        *further: Any,
        memory: Optional[Memory] = None,
        **named: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """As in the base class; with *memory* (no cache), it also returns the next ``"memory"``."""
        if memory is not None and incremental_state is not None:
            raise ValueError("memory: a cache already holds all earlier tokens; give only one")
        arguments = (prev_output_tokens, encoder_out, incremental_state, *further)
        named = {**named, "earlier": memory or ()}
        x, extra = super().extract_features_scriptable(*arguments, **named)
        if memory is not None:
            inputs = [state.transpose(0, 1) for state in extra["inner_states"][:-1]]
            extra["memory"] = moved_on(memory, inputs, self.memory_length)
        return x, extra
