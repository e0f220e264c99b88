"""A ``tokenizer.json`` that numbers text as fairseq's dictionary does.

A :class:`Splitter` splits the text; this module has the one for text that is split already.
"""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.exchange.reader import DICTIONARY, LEADING, MASK

#: The logit of a symbol that must not be produced; half precision has it, too.
HIDDEN = -65504.0
#: Entries of tokenizer_config.json by which tokenizer.json is read as it is, and names of special
#: symbols in a text are text.
AS_TEXT = {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}
MASK_NOTE = (
    "its tokenizer reads the name of a special symbol in a text as text; for a text with a mask, "
    "give it split_special_tokens=False"
)


class Marks(NamedTuple):
    """What a tokenizer puts around texts."""

    roles: Dict[str, str]  # the special symbols by their names in tokenizer_config.json
    single: str  # a text between its symbols; ``$A`` is the text
    # two texts, ``$A`` and ``$B``, between their symbols; ``:1`` behind a part says that it is of
    # the second segment
    pair: str
    inputs: List[str]  # what the model reads


#: Every text of a language model begins with ``</s>``.
CAUSAL_MARKS = Marks(
    {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "</s> $A",
    "</s> $A $B",
    ["input_ids", "attention_mask"],
)
#: Sources and targets of translation models end with ``</s>``.
TRANSLATION_MARKS = CAUSAL_MARKS._replace(single="$A </s>", pair="$A $B </s>")
#: The roles of symbols in a model whose texts are between ``<s>`` and ``</s>``.
ENCODER_ROLES = {
    **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
    **{"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": MASK},
}


def replace(pattern: str, content: str) -> Dict[str, Any]:
    """A step of tokenizer.json that replaces what matches a pattern."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


#: Python, and so fairseq, takes these for spaces, and the steps of tokenizer.json do not.
SEPARATORS = replace(r"[\x1c-\x1f]", " ")


class Splitter(NamedTuple):
    """The parts of a tokenizer.json that split text into symbols and join them."""

    model: Dict[str, Any]  # the entry ``model``, with the number of each symbol
    normalizer: Any = None  # the entry of this name
    pre_tokenizer: Any = None  # the entry of this name
    decoder: Any = None  # the entry of this name
    # symbols behind those of the dictionary, which stand for ``<unk>``
    hidden: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()  # what the user should know
    added: Tuple[Dict[str, Any], ...] = ()  # further entries of ``added_tokens``
    # the same as a file of SentencePiece, which some programs read in place of tokenizer.json, or
    # None
    sentencepiece: Optional[bytes] = None


def split_at_spaces(symbols: List[str]) -> Splitter:
    """The splitter of text that is split into symbols already."""
    number = {symbol: index for index, symbol in enumerate(symbols)}
    note = "its tokenizer splits text at spaces, into symbols of dict.txt, as fairseq does"
    model = {"type": "WordLevel", "vocab": number, "unk_token": "<unk>"}
    return Splitter(model, SEPARATORS, {"type": "WhitespaceSplit"}, None, (), (note,))


def write_symbols(
    path: str, dictionary: Dictionary, longest: int, marks: Marks, splitter: Splitter
) -> Tensor:
    """Write a tokenizer with the numbers of dict.txt, and that file.

    Returns:
        our number of each symbol of the tokenizer, (V,); hidden ones stand for ``<unk>``.
    """
    number = dictionary.indices
    used = [*LEADING, MASK] if MASK in marks.roles.values() else LEADING
    added = [
        {
            "id": number[symbol],
            "content": symbol,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for symbol in used
    ]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*added, *splitter.added],
        "normalizer": splitter.normalizer,
        "pre_tokenizer": splitter.pre_tokenizer,
        "post_processor": post_processor(marks, number),
        "decoder": splitter.decoder,
        "model": splitter.model,
    }
    Path(path, "tokenizer.json").write_text(json_text(content), "utf-8")
    others = [name for name in ("<s>", MASK) if name not in marks.roles.values()]
    settings = {
        **marks.roles,
        "additional_special_tokens": [name for name in others if name in number],
        **AS_TEXT,
        "model_input_names": marks.inputs,
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
    }
    Path(path, "tokenizer_config.json").write_text(json_text(settings), "utf-8")
    dictionary.save(os.path.join(path, DICTIONARY))
    hidden = torch.full((len(splitter.hidden),), dictionary.unk())
    return torch.cat((torch.arange(len(dictionary)), hidden))


def post_processor(marks: Marks, number: Mapping[str, int]) -> Dict[str, Any]:
    """The entry of tokenizer.json that puts special symbols around texts."""
    single, pair = _template(marks.single), _template(marks.pair)
    parts = (part.get("SpecialToken") for part in single + pair)
    around = sorted({part["id"] for part in parts if part is not None})
    special = {name: {"id": name, "ids": [number[name]], "tokens": [name]} for name in around}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _template(text: str) -> List[Dict[str, Any]]:
    """A template of tokenizer.json, given one such as ``<s> $A </s>``."""
    parts = []
    for part in text.split():
        name, _, segment = part.partition(":")
        kind, name = ("Sequence", name[1:]) if name[0] == "$" else ("SpecialToken", name)
        parts.append({kind: {"id": name, "type_id": int(segment or 0)}})
    return parts
