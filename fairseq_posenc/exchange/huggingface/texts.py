"""Vocabularies and tokenizers of classes of transformers.

A written tokenizer numbers its symbols as dict.txt does.
"""

import os
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text, read_json_object
from fairseq_posenc.exchange import reader
from fairseq_posenc.exchange.huggingface.splitters import Splitter, splitter_of
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import LEADING, MASK, Config
from fairseq_posenc.flags.options import SIDES, option
from fairseq_posenc.models.kinds import PAD
from fairseq_posenc.serving.transformers_tokenizer import find_files, in_order, read_symbols
from fairseq_posenc.serving.translate import MAX_LENGTH

#: Entries of tokenizer_config.json: transformers then uses tokenizer.json unchanged, and treats the
#: name of a special symbol in a text as ordinary text.
AS_TEXT = {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}


class Marks(NamedTuple):
    """The special symbols that a tokenizer puts around texts."""

    roles: Dict[str, str]  # the special symbols, by role in tokenizer_config.json
    single: str  # the template of one text, ``$A``
    # the template of two texts, ``$A`` and ``$B``; ``:1`` after a text or a symbol puts it in the
    # second segment
    pair: str
    inputs: List[str]  # names of the model's inputs


_ROLES = {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
_INPUTS = ["input_ids", "attention_mask"]
#: Sources and targets of translation models end with ``</s>``.
TRANSLATION_MARKS = Marks(_ROLES, "$A </s>", "$A $B </s>", _INPUTS)


def write_symbols(
    path: str, dictionary: Dictionary, longest: int, marks: Marks, splitter: Splitter
) -> Tensor:
    """Write dict.txt, and a tokenizer with the numbers of dict.txt.

    Returns:
        our number of each symbol of the tokenizer, (V,); for hidden symbols, that of ``<unk>``.
    """
    number = dictionary.indices
    used = [*LEADING, MASK] if MASK in marks.roles.values() else LEADING
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": number[s], "content": s, "special": True, **usual} for s in used]
    content = {
        **{"version": "1.0", "truncation": None, "padding": None},
        "added_tokens": [*added, *splitter.content.get("added_tokens", ())],
        **{name: splitter.content.get(name) for name in ("normalizer", "pre_tokenizer")},
        "post_processor": post_processor(marks, number),
        **{name: splitter.content.get(name) for name in ("decoder", "model")},
    }
    others = [name for name in ("<s>", MASK) if name not in marks.roles.values()]
    settings = {
        **marks.roles,
        "additional_special_tokens": [name for name in others if name in number],
        **AS_TEXT,
        "model_input_names": marks.inputs,
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
    }
    write_tokenizer(path, content, settings)
    dictionary.save(os.path.join(path, reader.DICTIONARY))
    hidden = torch.full((len(splitter.hidden),), dictionary.unk())
    return torch.cat((torch.arange(len(dictionary)), hidden))


def write_tokenizer(folder: str, content: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write the *content* of tokenizer.json and the *settings* of tokenizer_config.json."""
    for name, entries in (("tokenizer.json", content), ("tokenizer_config.json", settings)):
        Path(folder, name).write_text(json_text(entries), "utf-8")


def post_processor(marks: Marks, number: Mapping[str, int]) -> Dict[str, Any]:
    """The entry of tokenizer.json that puts special symbols around texts."""
    parts = {"single": _template(marks.single), "pair": _template(marks.pair)}
    around = {p["SpecialToken"]["id"] for p in sum(parts.values(), []) if "SpecialToken" in p}
    special = {
        name: {"id": name, "ids": [number[name]], "tokens": [name]} for name in sorted(around)
    }
    return {"type": "TemplateProcessing", **parts, "special_tokens": special}


def _template(text: str) -> List[Dict[str, Any]]:
    """Convert a template such as ``<s> $A </s>`` to the form of tokenizer.json."""
    parts = []
    for part in text.split():
        name, _, segment = part.partition(":")
        kind, name = ("Sequence", name[1:]) if name[0] == "$" else ("SpecialToken", name)
        parts.append({kind: {"id": name, "type_id": int(segment or 0)}})
    return parts


class WrittenTexts(NamedTuple):
    """The symbols of a written tokenizer, with their entries in config.json."""

    # for each side, our number of each symbol of the folder, (V,); symbols that our dictionary
    # lacks come last and have the number of ``<unk>``
    orders: Mapping[str, Tensor]
    known: Mapping[str, int]  # for each side, the size of our dictionary
    entries: Mapping[str, Any]  # the entries of config.json about symbols
    notes: Sequence[str] = ()  # what the user should know


class Texts:
    """Reads the vocabulary of a class and, in subclasses, writes its tokenizer."""

    #: whether a written tokenizer can split text as in training
    splits = True

    def read(self, path: str, file: Optional[str], config: Config) -> reader.Vocabulary:
        """The vocabulary of a folder.

        Args:
            file: the path of a vocabulary outside the folder, or None.

        Raises:
            UsageError: the vocabulary is missing, damaged, or lacks a symbol that the class needs.
        """
        return reader.dictionary_vocabulary(path, file) or reader.read_vocabulary(path, file)

    def notes(self, vocabulary: reader.Vocabulary, config: Config) -> List[str]:
        """Notes for the user on an imported vocabulary."""
        return []

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """Write a tokenizer.

        Args:
            inputs: names of the inputs of the class.
            hides: whether the class can be kept from producing some of its symbols.

        Raises:
            UsageError: the subwords cannot be read, or the format cannot hold them.
        """
        raise NotImplementedError


def write_generation(folder: str, entries: Mapping[str, Any], hidden: Iterable[int] = ()) -> None:
    """Write generation_config.json; ``generate`` then produces no padding or *hidden* symbols."""
    content = {**entries, "suppress_tokens": [PAD, *hidden]}
    Path(folder, "generation_config.json").write_text(json_text(content), "utf-8")


class CausalTexts(Texts):
    """Vocabulary and tokenizer of language models, whose texts begin with ``</s>`` or ``<s>``."""

    def notes(self, vocabulary: reader.Vocabulary, config: Config) -> List[str]:
        """See :class:`Texts`."""
        notes = []
        if vocabulary.missing:
            notes.append(f"zero vectors for {vocabulary.missing} symbols that only fairseq has")
        return [
            *notes,
            f"fairseq begins a text with {vocabulary.names['</s>']!r} or, with --add-bos-token, "
            f"with {vocabulary.names.get('<s>', '<s>')!r}",
        ]

    def write(
        self, checkpoint: NativeCheckpoint, inputs: Sequence[str], hides: bool, folder: str
    ) -> WrittenTexts:
        """See :class:`Texts`."""
        longest = checkpoint.settings["max_target_positions"]
        dictionary = checkpoint.dictionaries["decoder"]
        splitter = splitter_of(checkpoint.subwords, "decoder", dictionary.symbols, hides)
        begin = "<s>" if option(checkpoint.task, "add_bos_token") else "</s>"
        marks = Marks({**_ROLES, "bos_token": begin}, f"{begin} $A", f"{begin} $A $B", _INPUTS)
        order = write_symbols(folder, dictionary, longest, marks, splitter)
        if splitter.sentencepiece is not None:
            Path(folder, "tokenizer.model").write_bytes(splitter.sentencepiece)
        known, notes = len(dictionary), list(splitter.notes)
        if splitter.hidden:
            notes.append(
                f"{len(splitter.hidden)} subwords that dict.txt lacks have the embedding "
                "of <unk>; generation_config.json keeps them from being generated"
            )
        entries = {"pad_token_id": PAD, "bos_token_id": dictionary.index(begin)}
        entries["eos_token_id"] = dictionary.eos()
        # without max_length, a pipeline would generate beyond the longest text
        search = {**entries, "max_length": longest}
        write_generation(folder, search, range(known, len(order)))
        return WrittenTexts({"decoder": order}, {"decoder": known}, entries, notes)


#: The subfolder of the target's tokenizer, if there are two dictionaries.
TARGET = "target"
#: The symbols that must have numbers in config.json, each with its entry.
_NEEDED = (("</s>", "eos_token_id"), ("<pad>", "pad_token_id"))


class TranslationTexts(Texts):
    """Vocabulary and tokenizer of translation models; sources and targets end with ``</s>``."""

    def read(self, path: str, file: Optional[str], config: Config) -> reader.Vocabulary:
        """See :class:`Texts`."""
        size = config.size("vocab_size", 1)
        found = sorted({TARGET, "target_vocab.json"}.intersection(os.listdir(path)))
        if found or config.size("decoder_vocab_size", size) != size:
            reason = f"has {found[0]}" if found else "decoder_vocab_size is not vocab_size"
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
        settings, marks = checkpoint.settings, TRANSLATION_MARKS
        source, target = checkpoint.dictionaries.values()
        longest = settings["max_source_positions"]
        first, last = (
            splitter_of(checkpoint.subwords, side, each.symbols, hides)
            for side, each in checkpoint.dictionaries.items()
        )
        orders = dict.fromkeys(SIDES, write_symbols(folder, source, longest, marks, first))
        notes = list(first.notes)
        if source.symbols == target.symbols:
            if first.content != last.content:
                raise UsageError(
                    f"{checkpoint.path}: its source and its target share one dictionary but "
                    "not the subwords, and this format has one tokenizer for both; export without "
                    "--text-of and --subwords"
                )
        else:
            where, longest = os.path.join(folder, TARGET), settings["max_target_positions"]
            os.mkdir(where)
            orders["decoder"] = write_symbols(where, target, longest, marks, last)
            notes.append(f"the tokenizer of the target is in the subfolder {TARGET}")
        ends = ("eos_token_id", "decoder_start_token_id", "forced_eos_token_id")
        special = {"pad_token_id": PAD, "bos_token_id": target.bos()}
        special.update(dict.fromkeys(ends, target.eos()))
        search = {  # as in fairseq
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
    """The symbols of a tokenizer in the order of their numbers, and the path of their file."""
    listed = os.path.join(path, "vocab.json")
    others = (os.path.join(path, name) for name in ("vocab.txt", "tokenizer.json"))
    if file is not None or not os.path.isfile(listed) or any(map(os.path.isfile, others)):
        return read_symbols(find_files(path), file)
    return in_order(read_json_object(listed, f"{listed}:"), listed), listed


def _special_names(symbols: List[str], config: Config) -> Dict[str, str]:
    """The foreign names of fairseq's special symbols, by their numbers in config.json."""
    found: Dict[str, str] = {}
    for ours, entry in (*_NEEDED, ("<s>", "bos_token_id")):
        number = config.get(entry, None)
        if isinstance(number, int) and 0 <= number < len(symbols):
            if symbols[number] not in found.values():
                found[ours] = symbols[number]
    for ours in ("<s>", "<unk>", MASK):
        if ours in symbols and ours not in found.values():
            found.setdefault(ours, ours)
    for ours, entry in _NEEDED:
        if ours not in found:
            raise UsageError(
                f"{config.path}: {entry} is {config.get(entry, None)}; it must be the number of a "
                "symbol that has no other role"
            )
    return found
