"""The self-attention kernel of a model configuration, and its compatibility with encodings."""

from typing import List, Type

from fairseq_posenc.attention.base import AttentionKernel
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.attention.mixed_chunks import MixedChunkAttention
from fairseq_posenc.attention.registry import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Encoding
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
    for encoding in encodings:
        if not kernel.computes_logits:
            _check_without_logits(chosen, encoding)
        for hook in (encoding.transform, encoding.content):
            flag = hook.changes_values(options) if hook is not None else None
            if flag is not None and not kernel.values_like_keys:
                raise UsageError(
                    f"{flag}: the values and keys of {chosen} differ in size, so the encoding "
                    "cannot change the values; drop the flag"
                )
    kernel.check(options, encodings)


def _check_without_logits(chosen: str, encoding: Encoding) -> None:
    transform = encoding.transform
    adds = encoding.shared or encoding.content
    if adds or (transform is not None and not transform.applies_to_features):
        raise UsageError(
            f"{chosen}: --position-encoding {encoding.name} adds to logits, which this attention "
            "does not compute for all pairs of tokens; give rotary, sinusoidal, learned or none"
        )
