"""What has to agree in a folder of transformers: entries of config.json, tensors and symbols.

Versions of the library read a folder that contradicts itself in different ways.  Where the output
is the embedding by config.json and another matrix by the weights, version 4 takes the embedding,
and version 5 the matrix.  Such folders are refused.
"""

import os
from typing import List, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.table import TransformersClass
from fairseq_posenc.exchange.reader import LEADING, Vocabulary
from fairseq_posenc.serving.huggingface.vocabulary import numbers_in

#: The number of rows is often rounded up to a multiple of one of these, which is small beside it.
_MULTIPLES = (8, 16, 32, 64, 128, 256, 512)


def agreed(
    source: TransformersClass, folder: hf.Folder, vocabulary: Vocabulary
) -> Tuple[hf.Folder, List[str]]:
    """A folder without the rows behind the last symbol, and notes on these and on other roles."""
    tensors = dict(folder.parameters)
    if not source.shared:
        tensors = hf.with_prefix(tensors, source.rows[0])
    tensors.update({n: tensors[n].flatten() for n in source.output_biases if n in tensors})
    folder = folder._replace(parameters=dict(tensors))
    known = len(vocabulary.order) - vocabulary.missing
    _check_numbers(folder.config, known)
    present = [name for name in source.rows if name in tensors]
    if present:
        _check_shapes(folder, present, source.width)
    notes = _other_roles(folder.config, vocabulary)
    longer = [name for name in present if tensors[name].dim() and len(tensors[name]) > known]
    # others are refused where they are read
    if longer and source.padded and _is_explained(folder, vocabulary, tensors[present[0]]):
        for name in longer:
            extra = len(tensors[name]) - known
            notes.append(f"left out {extra} rows of {name} that have no symbol")
            tensors[name] = tensors[name][:known]
    return folder._replace(parameters=tensors), notes


def _check_shapes(folder: hf.Folder, names: Sequence[str], width: str) -> None:
    """Refuse tensors with other sizes than config.json and the first of them say."""
    config, tensors = folder.config, folder.parameters
    rows = {name: len(tensors[name]) if tensors[name].dim() else 1 for name in names}
    first, *others = names
    sizes = {"vocab_size": (rows[first], "rows")}
    if tensors[first].dim() == 2:
        sizes[width] = tensors[first].size(1), "columns"
    for entry, (size, what) in sizes.items():
        if config.size(entry, size) != size:
            raise UsageError(
                f"{config.path}: {entry} is {config.size(entry)}, but {first} in {folder.weights} "
                f"has {size} {what}"
            )
    for name in others:
        if rows[name] != rows[first]:
            raise UsageError(
                f"{folder.weights}: {name} has {rows[name]} rows, and {first} has {rows[first]}"
            )


def _check_numbers(config: Config, known: int) -> None:
    """Refuse ids of special tokens that are not in the vocabulary."""
    for entry, given in config.entries.items():
        if not entry.endswith("_token_id") or given is None:
            continue
        several = isinstance(given, list) and given and entry.endswith("eos_token_id")
        for number in given if several else [given]:
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not whole or not 0 <= number < known:
                raise UsageError(
                    f"{config.path}: {entry} is {given!r}; it must be the number of a symbol, from "
                    f"0 to {known - 1}"
                )


def _other_roles(config: Config, vocabulary: Vocabulary) -> List[str]:
    """Notes on symbols that have their role in the tokenizer alone, which many models differ in."""
    notes: List[str] = []
    for ours, entry in (("</s>", "eos_token_id"), ("<pad>", "pad_token_id")):
        number, given = int(vocabulary.order[LEADING.index(ours)]), config.get(entry, None)
        known = given if isinstance(given, list) else [given]
        if ours in vocabulary.names and given is not None and number not in known:
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
    multiples = (multiple for multiple in _MULTIPLES if multiple <= largest)
    return any(-(-known // multiple) * multiple == len(table) for multiple in multiples)


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
