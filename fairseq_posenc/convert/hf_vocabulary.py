"""Vocabulary files of the ``transformers`` library: vocab.txt or tokenizer.json."""

import os
from typing import Dict, List, Mapping, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_posenc.convert.dictionary import MASK, Vocabulary, renumber
from fairseq_posenc.convert.files import read_json
from fairseq_posenc.errors import UsageError

#: fairseq's symbol, the role in tokenizer_config.json, and its usual name.
_ROLES = (
    ("<s>", "cls_token", "[CLS]"),
    ("<pad>", "pad_token", "[PAD]"),
    ("</s>", "sep_token", "[SEP]"),
    ("<unk>", "unk_token", "[UNK]"),
    (MASK, "mask_token", "[MASK]"),
)

#: The first symbols of vocab.txt, in order.
FIRST = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

#: Names of the special symbols in tokenizer_config.json, in exported models.
SPECIAL_TOKENS: Dict[str, str] = {role: usual for _, role, usual in _ROLES}


def read_vocabulary(path: str, file: Optional[str]) -> Vocabulary:
    """Read the vocabulary of a folder.

    Args:
        path: the folder.
        file: a vocab.txt elsewhere.

    Raises:
        UsageError: it is missing, or fairseq's dictionary cannot hold it.
    """
    settings = {}
    if os.path.isfile(os.path.join(path, "tokenizer_config.json")):
        settings = read_json(os.path.join(path, "tokenizer_config.json"))
    special = {
        ours: _content(settings.get(role) or usual, role, path) for ours, role, usual in _ROLES
    }
    source = file or os.path.join(path, "vocab.txt")
    if file is None and not os.path.isfile(source):
        fast = os.path.join(path, "tokenizer.json")
        if os.path.isfile(fast):
            return renumber(_fast_vocabulary(fast), special, fast)
        raise UsageError(
            f"{path}: has neither vocab.txt nor tokenizer.json; if the vocabulary is elsewhere, "
            "give its vocab.txt with --vocab"
        )
    try:
        with open(source, encoding="utf-8") as lines:
            symbols = [line.rstrip("\n") for line in lines]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{source}: cannot be read as a vocabulary ({error})") from error
    return renumber(symbols, special, source)


def _fast_vocabulary(path: str) -> List[str]:
    """The symbols in a tokenizer.json, by number."""
    content = read_json(path)
    try:
        numbers = dict(content["model"]["vocab"])
        numbers.update({token["content"]: token["id"] for token in content["added_tokens"]})
        symbols = sorted(numbers, key=lambda symbol: numbers[symbol])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: has no word-piece vocabulary; give a vocab.txt with --vocab"
        ) from error
    if [numbers[symbol] for symbol in symbols] != list(range(len(symbols))):
        raise UsageError(
            f"{path}: its {len(symbols)} symbols are not numbered from 0 to {len(symbols) - 1}; "
            "give a vocab.txt with --vocab"
        )
    return symbols


def _content(token: Union[str, Mapping[str, str]], role: str, path: str) -> str:
    """The text of a special token, which some files wrap in an object."""
    content = token.get("content") if isinstance(token, dict) else token
    if not isinstance(content, str):
        raise UsageError(
            f"{os.path.join(path, 'tokenizer_config.json')}: {role} is {token!r}; it must be a "
            "symbol or an object with its content"
        )
    return content


def vocabulary_order(symbols: List[str], source: str) -> Tuple[List[str], Tensor]:
    """The usual order of a vocab.txt: five special symbols, then the rest in its order.

    Args:
        symbols: the symbols of fairseq's dictionary, in order.
        source: the file they come from, for messages.

    Returns:
        the symbols in the new order, and the number of each in fairseq's dictionary.

    Raises:
        UsageError: an ordinary symbol has the name of a special one.
    """
    ours = {usual: name for name, _, usual in _ROLES}
    special = set(ours.values())
    for symbol in symbols:
        if symbol in ours:
            raise UsageError(
                f"{source}: the ordinary symbol {symbol!r} is one that transformers reserves; "
                "rename it"
            )
    present = [name for name in FIRST if ours[name] in symbols]  # a language model may lack [MASK]
    first = [symbols.index(ours[name]) for name in present]
    rest = [number for number, symbol in enumerate(symbols) if symbol not in special]
    return [*present, *(symbols[number] for number in rest)], torch.tensor([*first, *rest])
