"""The tokenizer that goes with an exported encoder, and the numbers of its symbols.

A tokenizer of transformers stays the same, and rows of the vocabulary are put in its order.  For
other subwords a tokenizer is written that has the numbers of dict.txt.
"""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import splitter_of
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import (
    AS_TEXT,
    ENCODER_ROLES,
    Marks,
    post_processor,
    write_symbols,
)
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import DICTIONARY, LEADING, MASK, read_vocabulary
from fairseq_posenc.flags.options import option
from fairseq_posenc.serving.huggingface.control_symbols import as_text
from fairseq_posenc.serving.huggingface.tokenizer import (
    Files,
    description,
    find_files,
    special_names,
)

#: fairseq's names of special symbols, by the entries of config.json for their numbers.
_ROLES = {
    "bos_token_id": "<s>",
    "cls_token_id": "<s>",
    "pad_token_id": "<pad>",
    "eos_token_id": "</s>",
    "sep_token_id": "</s>",
}
_SEGMENTS = "token_type_ids"
_SETTINGS = "tokenizer_config.json"


class WrittenTokenizer(NamedTuple):
    """A tokenizer in an exported folder.

    Args:
        order: our number of each of its symbols, (V,); symbols behind those of our dictionary stand
            for ``<unk>``.
        notes: what the user should know of it.
    """

    order: Tensor
    notes: Tuple[str, ...]

    def number_of(self, ours: int) -> int:
        """Its number of one of our symbols."""
        return int(self.order.eq(ours).nonzero()[0, 0])

    def entries(self) -> Dict[str, int]:
        """The entries of config.json for special symbols."""
        return {role: self.number_of(LEADING.index(name)) for role, name in _ROLES.items()}


def written_tokenizer(
    checkpoint: NativeCheckpoint, inputs: Sequence[str], folder: str
) -> WrittenTokenizer:
    """Write the tokenizer of an encoder.

    Args:
        checkpoint: the model, with its subwords if they are known.
        inputs: what the class reads.
        folder: an existing folder.

    Raises:
        UsageError: the subwords cannot be read, or their symbols are not those of the model.
    """
    subwords, symbols = checkpoint.subwords, checkpoint.symbols
    several = (checkpoint.settings["num_segments"] or 0) > 1
    inputs = [name for name in inputs if several or name != _SEGMENTS]
    if subwords is not None and subwords.text.subwords == "transformers":
        files = find_files(str(subwords.source))
        content = description(files)
        if content is not None:
            return _copied(checkpoint, files, content, inputs, folder)
    splitter = splitter_of(subwords, "encoder", symbols, hides=True)
    longest = checkpoint.settings["max_positions"]
    write_symbols(folder, symbols, longest, _marks(checkpoint, inputs), splitter)
    read_dictionary(checkpoint.dictionary).save(os.path.join(folder, DICTIONARY))
    hidden = torch.full((len(splitter.hidden),), LEADING.index("<unk>"))
    return WrittenTokenizer(torch.cat((torch.arange(len(symbols)), hidden)), splitter.notes)


def _marks(checkpoint: NativeCheckpoint, inputs: List[str]) -> Marks:
    """The marks of training: [CLS] in front of texts, and separators between two texts."""
    fine_tuned = hasattr(checkpoint.task, "separator_token")
    separator = option(checkpoint.task, "separator_token") is not None or not fine_tuned
    second = ":1" if _SEGMENTS in inputs else ""
    between = "</s> </s>" if separator else "</s>"
    pair = f"<s> $A {between} $B{second} </s>{second}"
    return Marks(ENCODER_ROLES, "<s> $A </s>", pair, inputs)


def _copied(
    checkpoint: NativeCheckpoint,
    files: Files,
    content: Dict[str, Any],
    inputs: List[str],
    folder: str,
) -> WrittenTokenizer:
    """Write the same tokenizer of transformers, and take its numbers."""
    vocabulary = read_vocabulary(files.folder, None)
    theirs = [*LEADING, *vocabulary.symbols, *([MASK] if MASK in vocabulary.names else [])]
    if theirs != checkpoint.symbols:
        raise UsageError(
            f"--subword-file {files.folder}: its symbols are not those of the model's dictionary "
            f"{checkpoint.dictionary}; give the tokenizer of its training"
        )
    names, order = vocabulary.names, torch.empty_like(vocabulary.order)
    order[vocabulary.order] = torch.arange(len(order))
    if (content.get("post_processor") or {}).get("type") in (None, "ByteLevel"):
        # such a tokenizer puts nothing around texts
        number = {names[ours]: int(vocabulary.order[LEADING.index(ours)]) for ours in LEADING}
        marks = _renamed(_marks(checkpoint, inputs), names)
        content = {**content, "post_processor": post_processor(marks, number)}
    roles = {role: names[ours] for role, ours in ENCODER_ROLES.items() if role != "bos_token"}
    del roles["eos_token"]
    content = as_text(content, special_names(files, content))
    settings = {**roles, **files.settings, "model_input_names": inputs, **AS_TEXT}
    settings["model_max_length"] = checkpoint.settings["max_positions"]
    Path(folder, "tokenizer.json").write_text(json_text(content), "utf-8")
    Path(folder, _SETTINGS).write_text(json_text(settings), "utf-8")
    return WrittenTokenizer(order, ())


def _renamed(marks: Marks, names: Mapping[str, str]) -> Marks:
    """Marks with other names of special symbols."""

    def other(template: str) -> str:
        parts = [part.partition(":") for part in template.split()]
        return " ".join(names.get(name, name) + colon + rest for name, colon, rest in parts)

    return marks._replace(single=other(marks.single), pair=other(marks.pair))
