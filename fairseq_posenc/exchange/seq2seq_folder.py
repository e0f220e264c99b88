"""What every folder of a translation model for transformers has beside its weights.

These are tokenizers that number text as fairseq does, and the settings of the search of
``fairseq-generate``.
"""

import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fairseq.data import Dictionary

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.exchange import huggingface as hf
from fairseq_posenc.exchange.formats import SUBWORD_FLAGS, Wanted
from fairseq_posenc.exchange.kinds import PAD, Settings
from fairseq_posenc.exchange.seq2seq_classes import SIDES
from fairseq_posenc.exchange.splitters import Subwords, splitter_of
from fairseq_posenc.exchange.symbols import TRANSLATION_MARKS, Splitter, write_symbols
from fairseq_posenc.serving.model_folder import CHECKPOINT, SETTINGS, Search, read_model_folder
from fairseq_posenc.serving.translate import MAX_LENGTH
from fairseq_posenc.text.preparation import Text, recorded
from fairseq_posenc.text.subwords import SUBWORD_FILES

#: The fields of a request that :func:`prepared` reads.
FLAGS = ("data", "source_lang", "target_lang", *SUBWORD_FLAGS)
DICTIONARY = "dict.txt"
#: The folder of the target's tokenizer, where there are two dictionaries.
TARGET = "target"
_END = "</s>"
#: fairseq-generate's search.
_SEARCH = Search(beam=5, lenpen=1.0)


def prepared(wanted: Wanted) -> Tuple[Wanted, Optional[Subwords], Search]:
    """An export with the file of the checkpoint, how its text was prepared, and its search.

    Args:
        wanted: its path can be a model folder, which says all of it.

    Raises:
        UsageError: a folder does not say it, or flags contradict each other.
    """
    if os.path.isdir(wanted.path):
        folder = read_model_folder(wanted.path, "export")
        if folder.checkpoint is None:
            raise UsageError(f"{wanted.path}: has no {CHECKPOINT}; pack the checkpoint")
        said = wanted if wanted.text_of or wanted.subwords else wanted._replace(text_of=wanted.path)
        found = said._replace(
            path=folder.checkpoint,
            data=wanted.data or wanted.path,
            source_lang=wanted.source_lang or folder.text.source_lang,
            target_lang=wanted.target_lang or folder.text.target_lang,
        )
        return found, subwords_of(found), folder.search
    return wanted, subwords_of(wanted), _SEARCH


def subwords_of(wanted: Wanted) -> Optional[Subwords]:
    """How text was prepared, as the flags of an export say it; None if they do not.

    Raises:
        UsageError: as :func:`prepared`.
    """
    kind, file, folder = wanted.subwords, wanted.subword_file, wanted.text_of
    if folder is not None:
        if kind is not None or file is not None:
            raise UsageError(f"--text-of {folder}: give it without --subwords and --subword-file")
        if not os.path.isfile(os.path.join(folder, SETTINGS)):
            text = recorded(folder)
            if text is None:
                raise UsageError(f"--text-of {folder}: does not say how its text was prepared")
            return Subwords(text, text.subword_file, text.target_subword_file or text.subword_file)
        model = read_model_folder(folder, "--text-of")
        names = (model.text.subword_file, model.text.target_subword_file or model.text.subword_file)
        return Subwords(model.text, *(None if n is None else model.file(n) for n in names))
    if kind is None and file is None:
        return None
    if kind is None or (SUBWORD_FILES[kind] is None) != (file is None):
        raise UsageError(
            f"--subword-file {file}: belongs to --subwords subword-nmt, sentencepiece or "
            f"transformers, which need one; --subwords is {kind}"
        )
    return Subwords(Text(subwords=kind, subword_file=file), file, file)


def dictionaries_of(loaded: Loaded) -> Dict[str, Dictionary]:
    """The dictionaries by side."""
    return dict(zip(SIDES, (loaded.task.source_dictionary, loaded.task.target_dictionary)))


class Texts(NamedTuple):
    """The symbols of a model and what splits its text, by side."""

    symbols: Dict[str, List[str]]
    splitters: Dict[str, Splitter]

    @property
    def one(self) -> bool:
        """Whether both sides have the same dictionary."""
        return self.symbols["encoder"] == self.symbols["decoder"]

    @property
    def hidden(self) -> Dict[str, int]:
        """By side, the number of symbols behind those of the dictionary."""
        return {side: len(splitter.hidden) for side, splitter in self.splitters.items()}

    @property
    def sizes(self) -> Dict[str, int]:
        """By side, the number of all symbols."""
        return {side: len(self.symbols[side]) + number for side, number in self.hidden.items()}


def texts_of(loaded: Loaded, subwords: Optional[Subwords], hides: bool) -> Texts:
    """The symbols of a loaded model, and what splits its text.

    Args:
        subwords: how its text was prepared, if that is known.
        hides: whether the model can have symbols that it never produces.

    Raises:
        UsageError: the subwords cannot be read, or have no place.
    """
    symbols = {side: list(each.symbols) for side, each in dictionaries_of(loaded).items()}
    splitters = {side: splitter_of(subwords, side, symbols[side], hides) for side in SIDES}
    found = Texts(symbols, splitters)
    if found.one and splitters["encoder"].model != splitters["decoder"].model:
        raise UsageError(
            f"{loaded.path}: its source and its target have one dictionary and two files of "
            "subwords, for which this format has no place; give neither --text-of nor --subwords"
        )
    return found


def write_texts(
    folder: str, loaded: Loaded, texts: Texts, settings: Settings, search: Search
) -> List[str]:
    """Write tokenizers, dictionaries and generation_config.json, and return notes.

    Args:
        folder: an existing folder.
        settings: the settings of the model, complete.
        search: beam size and length penalty.
    """
    size = texts.sizes["decoder"]
    content = _generation(settings, texts.symbols["decoder"], size, search)
    Path(folder, "generation_config.json").write_text(hf.as_json(content), "utf-8")
    source, target = (texts.splitters[side] for side in SIDES)
    longest = settings["max_source_positions"]
    write_symbols(folder, texts.symbols["encoder"], longest, TRANSLATION_MARKS, source)
    loaded.task.source_dictionary.save(os.path.join(folder, DICTIONARY))
    notes = list(source.notes)
    if not texts.one:
        os.mkdir(os.path.join(folder, TARGET))
        where, longest = os.path.join(folder, TARGET), settings["max_target_positions"]
        write_symbols(where, texts.symbols["decoder"], longest, TRANSLATION_MARKS, target)
        loaded.task.target_dictionary.save(os.path.join(where, DICTIONARY))
        notes.append(f"the tokenizer of the target is in the subfolder {TARGET}")
    return notes


def special(symbols: List[str]) -> Dict[str, Any]:
    """The numbers of special tokens, as fairseq uses them."""
    end = symbols.index(_END)
    return {
        "pad_token_id": PAD,
        "bos_token_id": symbols.index("<s>"),
        "eos_token_id": end,
        "decoder_start_token_id": end,
        "forced_eos_token_id": end,
    }


def _generation(
    settings: Settings, symbols: List[str], size: int, search: Search
) -> Dict[str, Any]:
    """generation_config.json, with which ``generate`` searches as fairseq-generate does.

    Args:
        size: the number of logits.
        search: beam size and length penalty.
    """
    longest = min(MAX_LENGTH, settings["max_target_positions"] - 1)
    return {
        **special(symbols),
        "max_length": longest + 2,  # with </s> before and after
        "min_new_tokens": 1,
        "num_beams": search.beam,
        "length_penalty": search.lenpen,
        "early_stopping": True,
        "suppress_tokens": [PAD, *range(len(symbols), size)],
    }
