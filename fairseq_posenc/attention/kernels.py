"""The self-attention kernel of a model configuration, and its compatibility with encodings."""

from typing import List, Type

from fairseq_posenc.attention.base import Abilities, AttentionKernel
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.attention.mixed_chunks import MixedChunkAttention
from fairseq_posenc.attention.registry import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings.base import Encoding, Stack
from fairseq_posenc.flags.options import Options, option


def kernel_of(options: Options) -> Type[AttentionKernel]:
    """The self-attention kernel selected by ``--layer`` and ``--attention``."""
    if options.layer == "gated":
        return MixedChunkAttention if option(options, "gau_chunk") else GatedAttention
    return ATTENTIONS.find(options.attention).thing


def check_attention(options: Options, encodings: List[Encoding]) -> None:
    """Refuse an attention that does not support *encodings*.

    Args:
        options: the model configuration, complete.
        encodings: all that the model's stacks use.

    Raises:
        UsageError: naming the flag.
    """
    chosen = f"--attention {options.attention}"
    if options.layer == "gated":
        if options.attention != "softmax":
            raise UsageError(
                f"{chosen}: gated attention units replace the attention of a layer; drop the flag, "
                "or --layer gated"
            )
        chunk = option(options, "gau_chunk")
        chosen = f"--gau-chunk {chunk}" if chunk else "--layer gated"
    kernel = kernel_of(options)
    abilities = kernel.abilities_for(options)
    for encoding in encodings:
        _check_logits(chosen, abilities, encoding)
        for hook in (encoding.transform, encoding.content):
            flag = hook.changes_values(options) if hook is not None else None
            if flag is not None and not abilities.values_like_keys:
                raise UsageError(
                    f"{flag}: the values and keys of {chosen} differ in size, so the encoding "
                    "cannot change the values; drop the flag"
                )
    kernel.check(options, encodings)


def _check_logits(chosen: str, abilities: Abilities, encoding: Encoding) -> None:
    transform = encoding.transform
    if not abilities.computes_logits:
        adds = encoding.shared or encoding.content
        if adds or (transform is not None and not transform.applies_to_features):
            raise UsageError(
                f"{chosen}: --position-encoding {encoding.name} adds to logits, which this "
                "attention does not compute for all pairs of tokens; give rotary, sinusoidal, "
                "learned or none"
            )
    elif encoding.content is not None and not abilities.content:
        raise UsageError(
            f"{chosen}: --position-encoding {encoding.name} has content-dependent logits, which "
            "this attention does not add; give rotary, learned, sinusoidal, none or one with "
            "content-free logits, such as t5 or alibi"
        )


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
