"""Lengths that are fixed when a model is built, for kernels that depend on one."""

from typing import List

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.flags.options import Options, option


def complete_length(options: Options, name: str, stacks: List[Stack], reason: str) -> None:
    """Set the length *name* to that of the longest input, in place, unless it is given.

    Args:
        options: the model configuration.
        name: of the setting.
        stacks: all that use it.
        reason: why inputs cannot be longer, for the message.

    Raises:
        UsageError: inputs can be longer.
    """
    longest = max(stack.max_positions for stack in stacks)
    if option(options, name) is None:
        setattr(options, name, longest)
    length = option(options, name)
    if length < longest:
        raise UsageError(
            f"{flag_of(name)} {length}: inputs can have {longest} tokens, and {reason}; give at "
            "least that, or allow shorter inputs"
        )


def check_length(options: Options, name: str, length: int) -> None:
    """Refuse a sequence of *length* tokens if the setting *name* is less.

    Raises:
        UsageError: naming both lengths.
    """
    if length > option(options, name):
        raise UsageError(
            f"{flag_of(name)} {option(options, name)}: a sequence has {length} tokens; shorten it"
        )
