"""What every folder of a translation model for transformers has beside its weights.

These are tokenizers that number text as fairseq does, and the settings of the search of
``fairseq-generate``.
"""

import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from fairseq.data import Dictionary

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.exchange.huggingface.card import CARD_FLAGS
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import Subwords, splitter_of
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import (
    TRANSLATION_MARKS,
    Splitter,
    write_symbols,
)
from fairseq_posenc.exchange.prepared import SUBWORD_FLAGS
from fairseq_posenc.exchange.reader import DICTIONARY
from fairseq_posenc.exchange.source import DATA, LANGUAGES
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import PAD, Settings
from fairseq_posenc.serving.model_folder import Search
from fairseq_posenc.serving.translate import MAX_LENGTH

#: The flags that an export of a translation model reads.
FLAGS = (DATA, *LANGUAGES, *SUBWORD_FLAGS, *CARD_FLAGS)
#: The folder of the target's tokenizer, where there are two dictionaries.
TARGET = "target"
_END = "</s>"


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
    content = _generation(settings, texts.symbols["decoder"], search)
    Path(folder, "generation_config.json").write_text(json_text(content), "utf-8")
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


def _generation(settings: Settings, symbols: List[str], search: Search) -> Dict[str, Any]:
    """generation_config.json, with which ``generate`` searches as fairseq-generate does.

    Args:
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
        "suppress_tokens": [PAD],
    }
