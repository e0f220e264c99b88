"""Vocabulary files of the ``transformers`` library: vocab.txt or tokenizer.json."""

from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.dictionary import Vocabulary, renumber
from fairseq_posenc.text.tokenizer import ROLES, find_files, read_symbols

#: The first symbols of vocab.txt, in order.
FIRST = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

#: Names of the special symbols in tokenizer_config.json, in exported models.
SPECIAL_TOKENS: Dict[str, str] = {role: usual for _, role, usual in ROLES}


def read_vocabulary(path: str, file: Optional[str]) -> Vocabulary:
    """Read the vocabulary of a folder.

    Args:
        path: the folder.
        file: a vocab.txt elsewhere.

    Raises:
        UsageError: it is missing, or fairseq's dictionary cannot hold it.
    """
    files = find_files(path)
    symbols, source = read_symbols(files, file)
    return renumber(symbols, files.special(), source)


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
    ours = {usual: name for name, _, usual in ROLES}
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
