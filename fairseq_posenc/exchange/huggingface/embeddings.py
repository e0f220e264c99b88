"""The embeddings and the output of a class of transformers and ours, in both directions.

fairseq multiplies embeddings by √C.  Where a class does not, the factor becomes part of the written
embedding, which is then apart from the output.  T5 multiplies the states by 1/√C in front of an
output that is the embedding, which is the same for an embedding of √C times the size.
"""

import math
from typing import Callable, List, Mapping

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.table import LAST_NORM, Architecture, TransformersClass
from fairseq_posenc.exchange.huggingface.texts import WrittenTexts
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import LEADING, ForeignParameters, Reader
from fairseq_posenc.models.kinds import CAUSAL, MASKED, PAD, TRANSLATION, Parameters, Settings

#: fairseq's number of ``</s>``.
_END = LEADING.index("</s>")
#: The logit of a symbol that must not be produced; half precision has it, too.
_HIDDEN = -65504.0
_OTHER_START = (
    "its translations do not begin with </s>: here they do, and </s> has the vector of their first "
    "token in the decoder, which has embeddings of its own for that"
)
#: The settings of each kind of model that say whether its output is the embedding, and whether that
#: is the one of both sides.
_SHARED: Mapping[str, Callable[[bool, bool], Settings]] = {
    MASKED.name: lambda tied, one: {"untie_weights_roberta": not tied},
    CAUSAL.name: lambda tied, one: {"share_decoder_input_output_embed": tied},
    TRANSLATION.name: lambda tied, one: {
        "share_decoder_input_output_embed": tied,
        "share_all_embeddings": one,
    },
}


def write_embeddings(
    target: TransformersClass,
    ours: Parameters,
    state: ForeignParameters,
    checkpoint: NativeCheckpoint,
    texts: WrittenTexts,
    built: Architecture,
) -> None:
    """Move the embeddings and the output to a class, with rows in its order.

    Args:
        ours: our parameters; those of the embeddings and of the output are removed.

    Raises:
        UsageError: the model has two embeddings, and the class has one.
    """
    tables = {stack.side: ours.pop(stack.our_embedding) for stack in target.stacks}
    (*_, side), first, last = tables, next(iter(tables.values())), [*tables.values()][-1]
    output = last if built.heads else ours.pop(target.kind.head + "weight", last)
    one, tied = first.shape == last.shape and torch.equal(first, last), torch.equal(output, last)
    if not one and not target.two_embeddings:
        raise UsageError(
            f"{checkpoint.path}: was trained without --share-all-embeddings, but {target.name} has "
            "one embedding for source and target; hf-remote-code holds two; nothing was written"
        )
    scaled = not checkpoint.settings.get("no_scale_embedding", True) and not target.scales()
    scale = math.sqrt(last.size(1)) if scaled else 1.0
    root = math.sqrt(last.size(1)) if target.divides else 1.0
    if target.shared and one and (tied or not target.two_embeddings):
        state[target.shared] = (first * scale)[texts.orders[side]]
    else:
        for stack in target.stacks:
            state[stack.embedding] = (tables[stack.side] * scale)[texts.orders[stack.side]]
    if tied and target.divides and scale != root:
        outside = target.stacks[-1].outside
        norm = next(joint.theirs for joint in outside if joint.ours == (LAST_NORM,))
        state[f"{norm}.weight"] *= root / scale
    elif not (tied and scale == root):
        state[target.output] = output[texts.orders[side]]
    if target.output_biases and not built.heads:
        usual, *untied = target.output_biases
        bias = ours.pop(target.kind.head + "bias", None)
        rows = (torch.zeros(len(output)) if bias is None else bias)[texts.orders[side]]
        rows[texts.known[side] :] = _HIDDEN  # symbols that our dictionary lacks are never produced
        state[usual] = rows[None] if bias is None else rows
        if target.output in state:
            state.update({name: rows.clone() for name in untied})


def start_of(source: TransformersClass, reader: Reader, config: Config) -> int:
    """The number of the token that begins a translation in a class."""
    usual = int(reader.vocabulary.order[LEADING.index(source.start)])
    start: int = config.get("decoder_start_token_id", usual)
    return start


def read_embeddings(
    source: TransformersClass,
    reader: Reader,
    built: Architecture,
    settings: Settings,
    config: Config,
    tied: bool,
    gains: Mapping[str, Tensor],
) -> List[str]:
    """Move the embeddings and the output to our names, set whether they are one, and return notes.

    Args:
        gains: the gain of the norm behind the last layer (C), by side, where ours has none.

    Raises:
        UsageError: a tensor is missing or misshapen, or the output has a bias that ours has not.
    """
    vocabulary, stacks, kind = reader.vocabulary, source.stacks, source.kind

    def rows(theirs: str) -> Tensor:
        table = vocabulary.rows(reader.take(theirs), f"{reader.path}: {theirs}")
        if kind is TRANSLATION:  # symbols that the class lacks are as improbable as padding
            table[vocabulary.absent] = table[PAD].clone()
        return table

    shares = source.shares(config)
    tables = {s.side: rows(s.embedding) for s in stacks if s.embedding in reader or not shares}
    if source.shared in reader or not tables:
        shared = rows(source.shared)
    else:
        shared = next(iter(tables.values()))
    first, last = (tables.get(stack.side, shared) for stack in (stacks[0], stacks[-1]))
    output = last if tied or built.heads else rows(source.output)
    notes: List[str] = []
    if source.start:
        number = int((vocabulary.order == start_of(source, reader, config)).nonzero()[0])
        if number != _END:
            last = last.clone()
            last[_END] = last[number].clone()
            notes.append(_OTHER_START)
    gain, root = gains.get(stacks[-1].side), math.sqrt(last.size(-1))
    if gain is not None and tied and source.divides:
        same = torch.equal(first, last) and torch.equal(last, output)
        if same and bool((gain == 1).all()):  # √C on the inputs, instead of 1/√C on the output
            settings["no_scale_embedding"] = False
            first = last = output = output / root
            gain = None
        else:
            gain = gain / root
    for stack, table in ((stacks[0], first), (stacks[-1], last)):
        theirs = stack.embedding if stack.side in tables else source.shared
        reader.put(stack.our_embedding, table, theirs)
    if built.heads:
        return []
    name = kind.head + "weight"
    reader.put(name, output, source.output)
    reader.drop(source.output)
    if gain is not None and not bool((gain == 1).all()):
        reader.scale_columns(gain, [name])
        if tied:
            notes.append("its output is tied, and apart here, with the gain of the last norm")
    one = torch.equal(last, reader.parameters[name])
    settings.update(_SHARED[kind.name](one, one and torch.equal(first, last)))
    if source.output_biases:
        _read_bias(source, reader, config, tied)
    return notes


def _read_bias(source: TransformersClass, reader: Reader, config: Config, tied: bool) -> None:
    """Move the bias of the output; arguments as for :func:`read_embeddings`."""
    usual, *others = source.output_biases
    name = next((other for other in others if not tied and other in reader), usual)
    if source.kind is not MASKED:
        if name in reader and bool(reader.take(name).ne(0).any()):
            raise UsageError(
                f"{reader.path}: {name} is not zero; the output of fairseq's models has no bias"
            )
    elif source.biased(name, config):
        reader.move_rows(name, source.kind.head + "bias")
        reader.drop(*source.output_biases)
    else:
        zeros = torch.zeros(len(reader.vocabulary.order))
        reader.put(source.kind.head + "bias", zeros, name)
