"""The tokenizer that goes with an exported encoder, and the numbers of its symbols.

A tokenizer of transformers stays the same, and rows of the vocabulary are put in its order.  For
other subwords a tokenizer is written that has the numbers of dict.txt.
"""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.texts import Texts, WrittenTexts, order_of
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import splitter_of
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import (
    AS_TEXT,
    ENCODER_ROLES,
    Marks,
    post_processor,
    write_symbols,
)
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import (
    DICTIONARY,
    LEADING,
    MASK,
    Vocabulary,
    read_vocabulary,
)
from fairseq_posenc.flags.options import option
from fairseq_posenc.models.kinds import PAD
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


class MaskedTexts(Texts):
    """The text of encoders, between ``<s>`` and ``</s>``.

    Args:
        counted: whether positions begin behind the number of the padding symbol.
    """

    def __init__(self, counted: bool = False) -> None:
        self.counted = counted

    def read(self, path: str, file: Optional[str], config: Config) -> Vocabulary:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        vocabulary = super().read(path, file, config)
        if vocabulary.missing or MASK not in vocabulary.names:
            raise UsageError(
                f"{vocabulary.source}: a masked language model has cls_token, sep_token and "
                "mask_token in tokenizer_config.json, and they are missing"
            )
        padding = int(vocabulary.order[PAD])
        if self.counted and padding_of(config) != padding:
            raise UsageError(
                f"{config.path}: pad_token_id is {padding_of(config)}, but {vocabulary.source} has "
                f"{vocabulary.names['<pad>']} as number {padding}; positions are counted from it"
            )
        return vocabulary

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        subwords, symbols = checkpoint.subwords, checkpoint.symbols
        several = (checkpoint.settings["num_segments"] or 0) > 1
        inputs = [name for name in inputs if several or name != _SEGMENTS]
        content = None
        if subwords is not None and subwords.text.subwords == "transformers":
            files = find_files(str(subwords.source))
            content = description(files)
        if content is not None:
            order = _copied(checkpoint, files, content, inputs, folder)
            notes: Tuple[str, ...] = ()
        else:
            splitter = splitter_of(subwords, "encoder", symbols, hides)
            longest = checkpoint.settings["max_positions"]
            write_symbols(folder, symbols, longest, _marks(checkpoint, inputs), splitter)
            read_dictionary(checkpoint.dictionary).save(os.path.join(folder, DICTIONARY))
            order, notes = order_of(symbols, splitter), splitter.notes
        numbers = {name: int(order.eq(n).nonzero()[0, 0]) for n, name in enumerate(LEADING)}
        entries = {role: numbers[name] for role, name in _ROLES.items()}
        return WrittenTexts({"encoder": order}, {"encoder": len(symbols)}, entries, notes)


def padding_of(config: Config) -> int:
    """The number of the padding symbol in config.json."""
    number = config.get("pad_token_id", PAD)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f"{config.path}: pad_token_id is {number!r}; it must be a whole number")
    return number


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
) -> Tensor:
    """Write the same tokenizer of transformers; returns our number of each of its symbols, (V,)."""
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
    return order


def _renamed(marks: Marks, names: Mapping[str, str]) -> Marks:
    """Marks with other names of special symbols."""

    def other(template: str) -> str:
        parts = [part.partition(":") for part in template.split()]
        return " ".join(names.get(name, name) + colon + rest for name, colon, rest in parts)

    return marks._replace(single=other(marks.single), pair=other(marks.pair))
