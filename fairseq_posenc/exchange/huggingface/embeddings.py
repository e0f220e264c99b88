"""The embeddings and the output of a class of transformers and ours, in both directions.

fairseq multiplies embeddings by √C.  Where a class does not, the factor becomes part of the written
embedding, which is then apart from the output.  T5 multiplies the states by 1/√C in front of an
output that is the embedding, which is the same for an embedding of √C times the size.

Versions of the library read a folder that contradicts itself in different ways.  Where the output
is the embedding by config.json and another matrix by the weights, version 4 takes the embedding,
and version 5 the matrix.  Such folders are refused.
"""

import math
import os
from typing import Callable, Dict, List, Mapping, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.table import LAST_NORM, Architecture, TransformersClass
from fairseq_posenc.exchange.huggingface.texts import WrittenTexts
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import LEADING, ForeignParameters, Reader, Vocabulary
from fairseq_posenc.models.kinds import CAUSAL, MASKED, PAD, TRANSLATION, Parameters, Settings
from fairseq_posenc.serving.transformers_tokenizer import numbers_in

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
#: The number of rows is often rounded up to a multiple of one of these, which is small beside it.
_MULTIPLES = (8, 16, 32, 64, 128, 256, 512)


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
    root = math.sqrt(last.size(1))
    said = any("no_scale_embedding" in entry.ours for entry in target.entries)
    scale = 1.0 if said or checkpoint.settings.get("no_scale_embedding", True) else root
    divisor = root if target.divides else 1.0
    if target.shared and one and (tied or not target.two_embeddings):
        state[target.shared] = (first * scale)[texts.orders[side]]
    else:
        for stack in target.stacks:
            state[stack.embedding] = (tables[stack.side] * scale)[texts.orders[stack.side]]
    if tied and target.divides and scale != divisor:
        outside = target.stacks[-1].outside
        norm = next(joint.theirs for joint in outside if joint.ours == (LAST_NORM,))
        state[f"{norm}.weight"] *= divisor / scale
    elif not (tied and scale == divisor):
        state[target.output] = output[texts.orders[side]]
    if target.output_biases and not built.heads:
        usual, *untied = target.output_biases
        bias = ours.pop(target.kind.head + "bias", None)
        rows = (torch.zeros(len(output)) if bias is None else bias)[texts.orders[side]]
        rows[texts.known[side] :] = _HIDDEN  # symbols that our dictionary lacks are never produced
        state[usual] = rows[None] if bias is None else rows
        if target.output in state:
            state.update({name: rows.clone() for name in untied})


# --- reading


def agreed(
    source: TransformersClass, folder: hf.Folder, vocabulary: Vocabulary
) -> Tuple[hf.Folder, List[str]]:
    """A folder without the rows behind the last symbol, and notes on these and on other roles.

    Raises:
        UsageError: its config.json, its tensors and its symbols contradict each other.
    """
    tensors = dict(folder.parameters)
    if not source.shared:
        tensors = hf.with_prefix(tensors, source.rows[0])
    tensors.update({n: tensors[n].flatten() for n in source.output_biases if n in tensors})
    known = len(vocabulary.order) - vocabulary.missing
    notes = _check_numbers(folder.config, vocabulary, known)
    present = [name for name in source.rows if name in tensors]
    if not present:
        return folder._replace(parameters=tensors), notes
    first = present[0]
    rows = len(tensors[first]) if tensors[first].dim() else 1
    sizes = {"vocab_size": (rows, "rows")}
    if tensors[first].dim() == 2:
        sizes[source.width] = tensors[first].size(1), "columns"
    for entry, (size, what) in sizes.items():
        given = folder.config.length(entry, size)
        if given != size:
            raise UsageError(
                f"{folder.config.path}: {entry} is {given}, but {first} in {folder.weights} has "
                f"{size} {what}"
            )
    # others are refused where they are read
    if rows > known and source.padded and _is_explained(folder, vocabulary, tensors[first]):
        for name in present:
            if tensors[name].shape[:1] == (rows,):
                notes.append(f"left out {rows - known} rows of {name} that have no symbol")
                tensors[name] = tensors[name][:known]
    return folder._replace(parameters=tensors), notes


def _check_numbers(config: Config, vocabulary: Vocabulary, known: int) -> List[str]:
    """Refuse ids of special tokens that are not in the vocabulary.

    Returns: notes on symbols that have their role in the tokenizer alone, as in many models.
    """
    roles, notes = {"eos_token_id": "</s>", "pad_token_id": "<pad>"}, []
    for entry, given in config.entries.items():
        if not entry.endswith("_token_id") or given is None:
            continue
        several = isinstance(given, list) and given and entry.endswith("eos_token_id")
        numbers = given if several else [given]
        for number in numbers:
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not whole or not 0 <= number < known:
                raise UsageError(
                    f"{config.path}: {entry} is {given!r}; it must be the number of a symbol, from "
                    f"0 to {known - 1}"
                )
        ours = roles.get(entry, "")
        if ours in vocabulary.names:
            number = int(vocabulary.order[LEADING.index(ours)])
            if number not in numbers:
                notes.append(
                    f"{entry} in config.json is {given}, but the tokenizer has number {number}, "
                    f"{vocabulary.names[ours]!r}, in this role, and that becomes {ours}"
                )
    return notes


def _is_explained(folder: hf.Folder, vocabulary: Vocabulary, table: Tensor) -> bool:
    """True for rows behind the last symbol that are copies of ``<unk>``, or round the number up."""
    known = len(vocabulary.order) - vocabulary.missing
    unknown = int(vocabulary.order[LEADING.index("<unk>")])
    if unknown < known and bool((table[known:] == table[unknown]).all()):
        return True  # an export writes these for symbols that the dictionary lacks
    tokenizer = os.path.join(folder.path, "tokenizer.json")
    if os.path.isfile(tokenizer) and len(numbers_in(tokenizer)) > known:
        return False
    largest = max(_MULTIPLES[0], len(table) // 16)
    return any(-(-known // m) * m == len(table) for m in _MULTIPLES if m <= largest)


def has_own_output(source: TransformersClass, folder: hf.Folder) -> bool:
    """Whether the output is apart from the embedding, in config.json as in the weights."""
    tensors, names = folder.parameters, [stack.embedding for stack in source.stacks]
    tied = source.tied(folder.config)
    last = names[-1] if names[-1] in tensors or not source.shared else source.shared
    usual, *others = source.output_biases or ("",)
    pairs = [(source.output, last), *((other, usual) for other in others)]
    if source.shares(folder.config):
        pairs += [(name, source.shared) for name in names]
    for own, shared in pairs if tied else ():
        both = own in tensors and shared in tensors
        if both and not torch.equal(tensors[own].float(), tensors[shared].float()):
            raise UsageError(
                f"{folder.weights}: {own} and {shared} differ, though tie_word_embeddings is true "
                "in config.json, or in the class where it is absent; set it to false, or correct "
                "the weights"
            )
    if not tied and source.output not in tensors:
        raise UsageError(
            f"{folder.weights}: has no tensor {source.output}, though tie_word_embeddings is false "
            "in config.json, or in the class where it is absent"
        )
    return not tied


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
    own = [s.embedding for s in stacks if s.embedding in reader or not shares]
    tables: Dict[str, Tensor] = {name: rows(name) for name in own}
    if source.shared in reader or not tables:
        tables[source.shared] = rows(source.shared)
    origins = [s.embedding if s.embedding in own else [*tables][-1] for s in stacks]
    first, last = tables[origins[0]], tables[origins[-1]]
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
    for stack, table, theirs in zip(stacks, (first, last), origins):
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
