"""The self-attention kernel of a model configuration, and its compatibility with encodings."""

from typing import List, Type

from fairseq_posenc.attention.base import ATTENTIONS, AttentionKernel
from fairseq_posenc.attention.flex import FLAG as FLEX_FLAG
from fairseq_posenc.attention.flex import FlexAttention
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.attention.mixed_chunks import MixedChunkAttention
from fairseq_posenc.basics.errors import UsageError
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


def check_attention(options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
    """Refuse an attention that does not support *encodings* or *stacks*.

    Args:
        options: the model configuration, complete but for the defaults of the kernel, which are
            filled in place.
        encodings: all that the model's stacks use.
        stacks: all that have this kernel.

    Raises:
        UsageError: naming the flag.
    """
    if options.layer == "gated" and options.attention != "softmax":
        raise UsageError(
            f"--attention {options.attention}: gated attention units replace the attention of a "
            "layer; drop the flag, or --layer gated"
        )
    kernel, chosen = kernel_of(options), flag_of_kernel(options)
    for encoding in encodings:
        if not kernel.accepts(encoding):
            taken = [entry.name for entry in ENCODINGS.values() if kernel.accepts(entry)]
            raise UsageError(
                f"{chosen}: {FLAG} {encoding.name} {_ACTS[encoding.acts.hook]}, which "
                f"this attention does not take; give {' or '.join(taken)}"
            )
        for hook in (encoding.transform, encoding.content):
            flag = hook.changes_values(options) if hook is not None else None
            if flag is not None and "values" not in kernel.takes:
                flag += f" {encoding.name}" if flag == FLAG else ""
                raise UsageError(
                    f"{flag}: the values of {chosen} cannot have positions; drop the flag"
                )
    _check_positions(options, chosen, kernel)
    for stack in stacks:
        if stack.causal and kernel.bidirectional_only:
            raise UsageError(
                f"--attention {options.attention}: {kernel.bidirectional_only}, and this "
                f"{stack.side} must not see later keys; give another attention, or a masked "
                "language model without --causal"
            )
    kernel.check(options, encodings, stacks)


def _check_positions(options: Options, chosen: str, kernel: Type[AttentionKernel]) -> None:
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
    if "any_order" not in kernel.takes:
        taking = [name for name, e in ATTENTIONS.items() if "any_order" in e.thing.takes]
        instead = f"give --attention {' or '.join(taking)}"
        if options.layer == "gated":  # units without chunks take positions in any order
            instead = "drop --gau-chunk"
        raise UsageError(f"{given}: {chosen} takes the tokens of all sequences in order; {instead}")
