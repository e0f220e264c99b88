"""The tokenizer of an exported encoder, and the numbers of its symbols.

If the tokenizer of a model is from transformers, the export copies this tokenizer and orders the
rows of embeddings like its symbols.  For other subwords, the export writes a tokenizer with the
numbers of dict.txt.  For RoFormer, the export writes a vocab.txt like BERT's, with word pieces.
"""

import json
import os
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.exchange.huggingface.splitters import splitter_of
from fairseq_posenc.exchange.huggingface.texts import (
    AS_TEXT,
    Marks,
    Texts,
    WrittenTexts,
    post_processor,
    write_symbols,
    write_tokenizer,
)
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import LEADING, MASK, Config, Vocabulary, read_vocabulary
from fairseq_posenc.models.kinds import PAD
from fairseq_posenc.models.segments import special_tokens
from fairseq_posenc.serving.transformers_tokenizer import (
    BERT,
    JIEBA,
    ROLES,
    Files,
    as_text,
    find_files,
    read_json,
    special_names,
    word_pieces,
)

#: The special symbols, by role, of a model whose texts are between ``<s>`` and ``</s>``.
_ROLES = {
    **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
    **{"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": MASK},
}
#: The roles for which config.json has the number of the symbol, such as ``bos_token_id``.
_NUMBERED = ("bos_token", "cls_token", "pad_token", "eos_token", "sep_token")
#: The first symbols of vocab.txt, in order.
_FIRST = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SEGMENTS = "token_type_ids"


class MaskedTexts(Texts):
    """Vocabulary and tokenizer of encoders, whose texts are between ``<s>`` and ``</s>``.

    Args:
        counted: whether positions are counted from the number of the padding symbol.
    """

    def __init__(self, counted: bool = False) -> None:
        self.counted = counted

    def read(self, path: str, file: Optional[str], config: Config) -> Vocabulary:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        vocabulary = super().read(path, file, config)
        if vocabulary.missing or MASK not in vocabulary.names:
            raise UsageError(
                f"{vocabulary.source}: a masked language model needs cls_token, sep_token and "
                "mask_token in tokenizer_config.json, and one is missing"
            )
        padding = int(vocabulary.order[PAD])
        if self.counted and padding_of(config) != padding:
            raise UsageError(
                f"{config.path}: pad_token_id is {padding_of(config)}, but {vocabulary.source} has "
                f"{vocabulary.names['<pad>']} as number {padding}; these numbers must be equal"
            )
        return vocabulary

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        subwords, order = checkpoint.subwords, None
        notes: Sequence[str] = ()
        several = (checkpoint.settings["num_segments"] or 0) > 1
        inputs = [name for name in inputs if several or name != _SEGMENTS]
        if subwords is not None and subwords.text.subwords == "transformers":
            order = _copied(checkpoint, find_files(str(subwords.source)), inputs, folder)
        if order is None:
            dictionary = checkpoint.dictionaries["encoder"]
            marks = _marks(checkpoint, inputs, dict(zip(LEADING, LEADING)))
            longest = checkpoint.settings["max_positions"]
            splitter = splitter_of(subwords, "encoder", dictionary.symbols, hides)
            order = write_symbols(folder, dictionary, longest, marks, splitter)
            notes = splitter.notes
        numbers = {name: int(order.eq(n).nonzero()[0, 0]) for n, name in enumerate(LEADING)}
        entries = {f"{role}_id": numbers[_ROLES[role]] for role in _NUMBERED}
        known = {"encoder": len(checkpoint.symbols)}
        return WrittenTexts({"encoder": order}, known, entries, notes)


def padding_of(config: Config) -> int:
    """The number of the padding symbol in config.json."""
    number = config.get("pad_token_id", PAD)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f"{config.path}: pad_token_id is {number!r}; it must be a whole number")
    return number


def _marks(checkpoint: NativeCheckpoint, inputs: List[str], names: Mapping[str, str]) -> Marks:
    """The special symbols around texts in training: [CLS], and separators after texts."""
    pairs = getattr(checkpoint.loaded.model, "reads_pairs", False)
    dictionary = checkpoint.dictionaries["encoder"]
    first, separator = special_tokens(checkpoint.task, dictionary, pairs)
    end, second = names["</s>"], ":1" if _SEGMENTS in inputs else ""
    single = f"$A {end}" if first is None else f"{names['<s>']} $A {end}"
    between = "" if separator is None else f"{end} "
    return Marks(_ROLES, single, f"{single} {between}$B{second} {end}{second}", inputs)


def _copied(
    checkpoint: NativeCheckpoint, files: Files, inputs: List[str], folder: str
) -> Optional[Tensor]:
    """Write the model's own tokenizer of transformers as a tokenizer.json.

    Returns our number of each written symbol, (V,), or None if no tokenizer.json can be made.
    """
    if files.kind != JIEBA and os.path.isfile(files.path("tokenizer.json")):
        content = read_json(files.path("tokenizer.json"))
    elif files.kind in (BERT, ""):
        made = word_pieces(files)
        made.add_special_tokens(sorted(files.special().values()))
        content = json.loads(made.to_str())
    else:
        return None
    vocabulary = read_vocabulary(files.folder, None)
    theirs = [*LEADING, *vocabulary.symbols, *([MASK] if MASK in vocabulary.names else [])]
    if theirs != checkpoint.symbols:
        raise UsageError(
            f"--subword-file {files.folder}: its symbols differ from the model's dictionary "
            f"{checkpoint.dictionary}; give the tokenizer that training used"
        )
    names = vocabulary.names
    if (content.get("post_processor") or {}).get("type") in (None, "ByteLevel"):
        # such a tokenizer adds no special symbols to texts
        number = {names[ours]: int(vocabulary.order[LEADING.index(ours)]) for ours in LEADING}
        marks = _marks(checkpoint, inputs, names)
        content = {**content, "post_processor": post_processor(marks, number)}
    of_texts = ("bos_token", "eos_token")  # a tokenizer of an encoder does not need these
    roles = {role: names[ours] for role, ours in _ROLES.items() if role not in of_texts}
    content = as_text(content, special_names(files, content))
    settings = {**roles, **files.settings, "model_input_names": inputs, **AS_TEXT}
    settings["model_max_length"] = checkpoint.settings["max_positions"]
    write_tokenizer(folder, content, settings)
    return vocabulary.order.argsort()


class WordPieceTexts(Texts):
    """Vocabulary and tokenizer of RoFormer, with special symbols first in vocab.txt."""

    splits = False

    def read(self, path: str, file: Optional[str], config: Config) -> Vocabulary:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        return read_vocabulary(path, file, needs_mask=not config.flag("is_decoder", False))

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`~fairseq_posenc.exchange.huggingface.texts.Texts`."""
        ours = {usual: name for name, _, usual in ROLES}
        number = {symbol: index for index, symbol in enumerate(checkpoint.symbols)}
        reserved = next((symbol for symbol in number if symbol in ours), None)
        if reserved is not None:
            raise UsageError(
                f"{checkpoint.dictionary}: the ordinary symbol {reserved!r} has a name that "
                "transformers reserves for a special symbol; rename it"
            )
        first = [name for name in _FIRST if ours[name] in number]  # there may be no [MASK]
        symbols = [*first, *(symbol for symbol in number if symbol not in ours.values())]
        order = torch.tensor([number[ours.get(symbol, symbol)] for symbol in symbols])
        settings = {
            **{role: usual for _, role, usual in ROLES},
            "tokenizer_class": "RoFormerTokenizer",
            "split_special_tokens": True,  # names of special symbols are text
            "model_max_length": checkpoint.settings[checkpoint.kind.length],
            "do_lower_case": all(symbol == symbol.lower() for symbol in symbols[len(first) :]),
        }
        Path(folder, "tokenizer_config.json").write_text(json_text(settings), "utf-8")
        text = "".join(symbol + "\n" for symbol in symbols)
        Path(folder, "vocab.txt").write_text(text, "utf-8")
        note = "vocab.txt lists the dictionary; text must be tokenised as it was for training"
        entries = {"pad_token_id": symbols.index("[PAD]")}
        side = checkpoint.kind.stack.partition(".")[0]
        return WrittenTexts({side: order}, {side: len(symbols)}, entries, (note,))
