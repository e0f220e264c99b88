"""The self-attention kernel of a model configuration, and its compatibility with encodings."""

from typing import List, Type

from fairseq_posenc.attention.base import ATTENTIONS, Abilities, AttentionKernel
from fairseq_posenc.attention.flex import FLAG as FLEX_FLAG
from fairseq_posenc.attention.flex import FlexAttention
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.attention.mixed_chunks import MixedChunkAttention
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import ENCODINGS, Encoding, Stack
from fairseq_posenc.encodings.random_positions import sampler_of, spreads
from fairseq_posenc.encodings.registry import FLAG
from fairseq_posenc.flags.options import Options, option

#: What encodings do, by the hook through which they act.
_ACTS = {
    "transform": "transforms queries and keys",
    "shared": "adds to logits by position",
    "content": "adds to logits by content",
}


def kernel_of(options: Options) -> Type[AttentionKernel]:
    """The self-attention kernel selected by ``--layer`` and ``--attention``."""
    if options.layer == "gated":
        return MixedChunkAttention if option(options, "gau_chunk") else GatedAttention
    if option(options, "attention_backend") == "flex":
        return FlexAttention
    return ATTENTIONS.find(options.attention).thing


def flag_of_kernel(options: Options) -> str:
    """The flag, with its value, that selects :func:`kernel_of`."""
    chunk = option(options, "gau_chunk")
    if options.layer == "gated":
        return f"--gau-chunk {chunk}" if chunk else "--layer gated"
    return FLEX_FLAG if kernel_of(options) is FlexAttention else f"--attention {options.attention}"


def check_attention(options: Options, encodings: List[Encoding]) -> None:
    """Refuse an attention that does not support *encodings*.

    Args:
        options: the model configuration, complete.
        encodings: all that the model's stacks use.

    Raises:
        UsageError: naming the flag.
    """
    if options.layer == "gated" and options.attention != "softmax":
        raise UsageError(
            f"--attention {options.attention}: gated attention units replace the attention of a "
            "layer; drop the flag, or --layer gated"
        )
    kernel, chosen = kernel_of(options), flag_of_kernel(options)
    abilities = kernel.abilities_for(options)
    for encoding in encodings:
        if not abilities.takes(encoding):
            taken = [entry.name for entry in ENCODINGS.values() if abilities.takes(entry)]
            raise UsageError(
                f"{chosen}: {FLAG} {encoding.name} {_ACTS[encoding.acts.hook]}, which "
                f"this attention does not take; give {' or '.join(taken)}"
            )
        for hook in (encoding.transform, encoding.content):
            flag = hook.changes_values(options) if hook is not None else None
            if flag is not None and not abilities.changes_values:
                flag += f" {encoding.name}" if flag == FLAG else ""
                raise UsageError(
                    f"{flag}: the values of {chosen} cannot have positions; drop the flag"
                )
    _check_positions(options, chosen, abilities)
    kernel.check(options, encodings)


def _check_positions(options: Options, chosen: str, abilities: Abilities) -> None:
    """Refuse positions that differ between sequences where an attention takes them in order."""
    sampler = sampler_of(options)
    if options.position_ids is not None:
        given = f"--position-ids {options.position_ids}"
    elif spreads(options):
        given = f"--evaluation-positions {options.evaluation_positions}"
    elif sampler is not None and not sampler.same_rows:
        given = f"--position-sampler {options.position_sampler}"
    else:
        return
    if not abilities.takes_positions:
        taking = [name for name, e in ATTENTIONS.items() if e.thing.abilities.takes_positions]
        instead = f"give --attention {' or '.join(taking)}"
        if options.layer == "gated":  # units without chunks take positions in any order
            instead = "drop --gau-chunk"
        raise UsageError(f"{given}: {chosen} takes the tokens of all sequences in order; {instead}")


def complete_attention(options: Options, stacks: List[Stack]) -> None:
    """Fill the greatest length of the kernel, in place, and refuse stacks it does not support.

    Args:
        options: the model configuration, complete but for that length.
        stacks: all that have this kernel.

    Raises:
        UsageError: a stack is causal and the kernel is not, or a sequence could be too long.
    """
    abilities = kernel_of(options).abilities_for(options)
    for stack in stacks:
        if stack.causal and abilities.bidirectional_only:
            raise UsageError(
                f"--attention {options.attention}: {abilities.bidirectional_only}, and this "
                f"{stack.side} must not see later keys; give another attention, or a masked "
                "language model without --causal"
            )
    name = abilities.longest
    if name is None:
        return
    longest = max(stack.max_positions for stack in stacks)
    if option(options, name) is None:
        setattr(options, name, longest)
    length = option(options, name)
    if length < longest:
        raise UsageError(
            f"{flag_of(name)} {length}: inputs can have {longest} tokens, and "
            f"{abilities.why_longest}; give at least that, or allow shorter inputs"
        )
