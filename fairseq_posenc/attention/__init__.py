"""Self-attention kernels (softmax, linear, local, gated), and their selection by flags.

To add a kernel to this package, write one file and import it below.  To add one of your own, use
:func:`register_attention` in a file in your ``--user-dir``.
"""

# ruff: noqa: F401 - names for other folders, and imports that register kernels

from typing import List, Type

from fairseq_posenc.attention import softmax  # first, as the default

# isort: split
from fairseq_posenc.attention.linear import layer  # registers elu

# isort: split
from fairseq_posenc.attention.linear import favor

# isort: split
from fairseq_posenc.attention import local
from fairseq_posenc.attention.base import (
    ATTENTIONS,
    AttentionKernel,
    MultiheadKernel,
    register_attention,
)
from fairseq_posenc.attention.functional import Batch, Padding
from fairseq_posenc.attention.gated import GatedAttention
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import ENCODINGS, Encoding, Stack
from fairseq_posenc.encodings.registry import FLAG
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import class_for, replacements_in

#: For error messages: what an encoding with each hook does.
_ACTS = {
    "transform": "transforms queries and keys",
    "shared": "adds to logits a term that depends on positions alone",
    "content": "adds to logits a term that depends on the content of tokens",
}


def kernel_of(options: Options) -> Type[AttentionKernel]:
    """The class of kernel that ``--layer``, ``--attention`` and further flags select."""
    gated = options.layer == "gated"
    base = GatedAttention if gated else ATTENTIONS.find(options.attention).thing
    return class_for(base, options)


def flag_of_kernel(options: Options) -> str:
    """The flag that selects the kernel, with the value of the flag, for error messages."""
    kernel = kernel_of(options)
    for each in replacements_in(options):
        if issubclass(kernel, each.thing):
            return f"{flag_of(each.flag)} {option(options, each.flag)}"
    return "--layer gated" if options.layer == "gated" else f"--attention {options.attention}"


def check_attention(options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
    """Refuse a kernel that does not support *encodings* or *stacks*.

    The arguments are those of :meth:`.AttentionKernel.check`, which is called at the end.
    """
    if options.layer == "gated" and options.attention != "softmax":
        raise UsageError(
            f"--attention {options.attention}: gated attention units replace the attention of "
            "every layer; drop this flag or --layer gated"
        )
    kernel, chosen = kernel_of(options), flag_of_kernel(options)
    for encoding in encodings:
        if not kernel.accepts(encoding):
            taken = [entry.name for entry in ENCODINGS.values() if kernel.accepts(entry)]
            raise UsageError(
                f"{chosen}: {FLAG} {encoding.name} {_ACTS[encoding.acts.hook]}, which "
                f"this attention does not support; give {' or '.join(taken)}"
            )
        for hook in (encoding.transform, encoding.content):
            flag = hook.changes_values(options) if hook is not None else None
            if flag is not None and "values" not in kernel.takes:
                flag += f" {encoding.name}" if flag == FLAG else ""
                raise UsageError(
                    f"{flag}: {chosen} does not support position-dependent values; drop this flag"
                )
    for stack in stacks:
        if stack.causal and kernel.bidirectional_only:
            raise UsageError(
                f"--attention {options.attention}: {kernel.bidirectional_only}, and this "
                f"{stack.side} must not see later keys; give another --attention, or use a "
                "masked language model without --causal"
            )
    kernel.check(options, encodings, stacks)


def refuse_any_order(options: Options, flag: str) -> None:
    """Refuse the positions that *flag* assigns if the kernel does not support them."""
    if "any_order" in kernel_of(options).takes:
        return
    chosen = flag_of_kernel(options)
    taking = [name for name, e in ATTENTIONS.items() if "any_order" in e.thing.takes]
    instead = f"give --attention {' or '.join(taking)}"
    if options.layer == "gated":  # another flag replaced plain gated units, which support them
        instead = f"drop {chosen.split()[0]}"
    raise UsageError(f"{flag}: {chosen} does not support such positions; {instead}")
