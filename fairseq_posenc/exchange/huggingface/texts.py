"""How the classes of transformers number text: vocabularies that are read, tokenizers written.

Written symbols have the numbers of dict.txt.
"""

import os
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text, read_json_object
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.exchange import reader
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.splitters import splitter_of
from fairseq_posenc.exchange.huggingface.symbols import (
    CAUSAL_MARKS,
    TRANSLATION_MARKS,
    write_symbols,
)
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import PAD
from fairseq_posenc.serving.huggingface.tokenizer import find_files, in_order, read_symbols
from fairseq_posenc.serving.translate import MAX_LENGTH


class WrittenTexts(NamedTuple):
    """What the tokenizer of a written folder says."""

    # by side, our number of each symbol of the folder, (V,); symbols behind those of our dictionary
    # stand for ``<unk>``
    orders: Mapping[str, Tensor]
    known: Mapping[str, int]  # by side, how many of them our dictionary has; they come first
    entries: Mapping[str, Any]  # the entries of config.json on symbols
    notes: Sequence[str] = ()  # what the user should know


class Texts:
    """How a class numbers text; this one reads the symbols of a tokenizer of transformers."""

    #: whether a written tokenizer can split text as the training did
    splits = True

    def read(self, path: str, file: Optional[str], config: Config) -> reader.Vocabulary:
        """The vocabulary of a folder.

        Args:
            file: its vocabulary, if that is elsewhere.

        Raises:
            UsageError: it is missing or damaged, or lacks a symbol that the class needs.
        """
        return reader.dictionary_vocabulary(path, file) or reader.read_vocabulary(path, file)

    def notes(self, vocabulary: reader.Vocabulary, config: Config) -> List[str]:
        """What the user should know of an imported vocabulary."""
        return []

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """Write a tokenizer.

        Args:
            inputs: what the class reads.
            hides: whether the class can have symbols that it never produces.

        Raises:
            UsageError: the subwords cannot be read, or have no place.
        """
        raise NotImplementedError


def write_generation(folder: str, entries: Mapping[str, Any], hidden: Iterable[int] = ()) -> None:
    """Write generation_config.json, by which ``generate`` never writes padding and *hidden*."""
    content = {**entries, "suppress_tokens": [PAD, *hidden]}
    Path(folder, "generation_config.json").write_text(json_text(content), "utf-8")


class CausalTexts(Texts):
    """The text of language models, which begins with ``</s>``."""

    def notes(self, vocabulary: reader.Vocabulary, config: Config) -> List[str]:
        """See :class:`Texts`."""
        notes = []
        if vocabulary.missing:
            notes.append(f"{vocabulary.missing} symbols of fairseq's that it lacks start as zeros")
        return [
            *notes,
            f"fairseq begins a text with {vocabulary.names['</s>']!r}; --add-bos-token begins it "
            f"with {vocabulary.names.get('<s>', '<s>')!r}",
        ]

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`Texts`."""
        longest = checkpoint.settings["max_target_positions"]
        dictionary = read_dictionary(checkpoint.dictionary, adds_mask=False)
        splitter = splitter_of(checkpoint.subwords, "decoder", dictionary.symbols, hides)
        order = write_symbols(folder, dictionary, longest, CAUSAL_MARKS, splitter)
        if splitter.sentencepiece is not None:
            Path(folder, "tokenizer.model").write_bytes(splitter.sentencepiece)
        known, notes = len(dictionary), list(splitter.notes)
        if splitter.hidden:
            notes.append(
                f"{len(splitter.hidden)} symbols of the subwords that dict.txt lacks have the "
                "vectors of <unk>, and generation_config.json keeps them from being written"
            )
        end = dictionary.eos()
        entries = {"pad_token_id": PAD, "bos_token_id": end, "eos_token_id": end}
        # a pipeline would go on behind the longest text
        search = {**entries, "max_length": longest}
        write_generation(folder, search, range(known, len(order)))
        return WrittenTexts({"decoder": order}, {"decoder": known}, entries, notes)


#: The folder of the target's tokenizer, where there are two dictionaries.
TARGET = "target"
#: Signs of a second vocabulary.
_OF_TARGET = (TARGET, "target_vocab.json")
#: The symbols that a class has to name in config.json, with their entries.
_NEEDED = (("</s>", "eos_token_id"), ("<pad>", "pad_token_id"))


class TranslationTexts(Texts):
    """Sources and targets that end with ``</s>``; the numbers are those of dict.txt."""

    def read(self, path: str, file: Optional[str], config: Config) -> reader.Vocabulary:
        """See :class:`Texts`."""
        size = config.size("vocab_size", 1)
        second = [name for name in _OF_TARGET if os.path.exists(os.path.join(path, name))]
        if second or config.size("decoder_vocab_size", size) != size:
            reason = (
                f"has {second[0]}" if second else "its decoder_vocab_size is not its vocab_size"
            )
            raise UsageError(f"{path}: {reason}; a model with two vocabularies cannot be imported")
        vocabulary = reader.dictionary_vocabulary(path, file)
        if vocabulary is None:
            symbols, source = _symbols(path, file)
            vocabulary = reader.renumber(symbols, _special_names(symbols, config), source)
        for ours, entry in _NEEDED:
            number = int(vocabulary.order[reader.LEADING.index(ours)])
            if config.get(entry, number) != number:
                raise UsageError(
                    f"{config.path}: {entry} is {config.get(entry, number)}, but "
                    f"{vocabulary.names[ours]} is number {number} in {vocabulary.source}"
                )
        return vocabulary

    def notes(self, vocabulary: reader.Vocabulary, config: Config) -> List[str]:
        """See :class:`Texts`."""
        return ["prepare text with --joined-dictionary and --srcdict dict.txt"]

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`Texts`."""
        settings, (source, target) = checkpoint.settings, checkpoint.dictionaries.values()
        longest, marks = settings["max_source_positions"], TRANSLATION_MARKS
        first, last = (
            splitter_of(checkpoint.subwords, side, each.symbols, hides)
            for side, each in checkpoint.dictionaries.items()
        )
        orders = dict.fromkeys(SIDES, write_symbols(folder, source, longest, marks, first))
        notes = list(first.notes)
        if source.symbols == target.symbols:
            if first.model != last.model:
                raise UsageError(
                    f"{checkpoint.path}: its source and its target have one dictionary and two "
                    "files of subwords, for which this format has no place; give neither --text-of "
                    "nor --subwords"
                )
        else:
            where, longest = os.path.join(folder, TARGET), settings["max_target_positions"]
            os.mkdir(where)
            orders["decoder"] = write_symbols(where, target, longest, marks, last)
            notes.append(f"the tokenizer of the target is in the subfolder {TARGET}")
        special = {
            "pad_token_id": PAD,
            "bos_token_id": target.bos(),
            "eos_token_id": target.eos(),
            "decoder_start_token_id": target.eos(),
            "forced_eos_token_id": target.eos(),
        }
        search = {  # as fairseq does it
            "max_length": min(MAX_LENGTH, settings["max_target_positions"] - 1) + 2,  # with 2 </s>
            "min_new_tokens": 1,
            "num_beams": checkpoint.search.beam,
            "length_penalty": checkpoint.search.lenpen,
            "early_stopping": True,
        }
        write_generation(folder, {**special, **search})
        known = {side: len(each) for side, each in checkpoint.dictionaries.items()}
        return WrittenTexts(orders, known, special, notes)


def _symbols(path: str, file: Optional[str]) -> Tuple[List[str], str]:
    """The symbols of a tokenizer by number, and their file."""
    listed = os.path.join(path, "vocab.json")
    others = (os.path.join(path, name) for name in ("vocab.txt", "tokenizer.json"))
    if file is not None or not os.path.isfile(listed) or any(map(os.path.isfile, others)):
        return read_symbols(find_files(path), file)
    return in_order(read_json_object(listed, f"{listed}:"), listed), listed


def _special_names(symbols: List[str], config: Config) -> Dict[str, str]:
    """The names of fairseq's special symbols, by the numbers in config.json."""
    found: Dict[str, str] = {}
    for ours, entry in (*_NEEDED, ("<s>", "bos_token_id")):
        number = config.get(entry, None)
        if isinstance(number, int) and 0 <= number < len(symbols):
            if symbols[number] not in found.values():
                found[ours] = symbols[number]
    for ours in ("<s>", "<unk>", reader.MASK):
        if ours in symbols and ours not in found.values():
            found.setdefault(ours, ours)
    for ours, entry in _NEEDED:
        if ours not in found:
            raise UsageError(
                f"{config.path}: {entry} is {config.get(entry, None)}; it must be the number of a "
                "symbol that no other role has"
            )
    return found
