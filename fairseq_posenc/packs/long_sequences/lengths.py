"""Settings of the longest sequence of a kernel."""

from typing import List

from fairseq_posenc.attention.functional import Batch
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import Stack
from fairseq_posenc.flags.options import Options, option


def complete_length(options: Options, stacks: List[Stack], name: str, why: str) -> None:
    """Fill in the setting *name*, by default the longest input of the model, in tokens.

    Args:
        stacks: all that have the kernel.
        why: why a sequence cannot be longer, for messages.

    Raises:
        UsageError: an input could be longer.
    """
    longest = max(stack.max_positions for stack in stacks)
    if option(options, name) is None:
        setattr(options, name, longest)
    length = option(options, name)
    if length < longest:
        raise UsageError(
            f"{flag_of(name)} {length}: inputs can have {longest} tokens, and {why}; give at "
            "least that, or allow shorter inputs"
        )


def refuse_longer(options: Options, name: str, batch: Batch) -> None:
    """Refuse a batch that is longer than the setting *name* says."""
    longest = int(option(options, name))
    if batch.length > longest:
        raise UsageError(
            f"{flag_of(name)} {longest}: a sequence has {batch.length} tokens; shorten it"
        )
