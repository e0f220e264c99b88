"""Numbering a foreign vocabulary the way fairseq's dictionary does, and back.

fairseq numbers ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, then the lines of dict.txt, and
``--task masked_lm`` appends ``<mask>``.  Other toolkits number and name their special
symbols differently, so the rows of every tensor indexed by the vocabulary have to be reordered.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.text.tokenizer import ROLES, find_files, ordinary_symbols, read_symbols

#: The first symbols of vocab.txt, in order.
FIRST = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

#: Names of the special symbols in tokenizer_config.json, in exported models.
SPECIAL_TOKENS: Dict[str, str] = {role: usual for _, role, usual in ROLES}

SPECIAL = tuple(ours for ours, _, _ in ROLES)
*LEADING, MASK = SPECIAL


class Vocabulary(NamedTuple):
    """A foreign vocabulary in fairseq's order.

    Args:
        symbols: the ordinary symbols, one per line of dict.txt.
        counts: their frequencies.
        order: foreign number of each symbol of fairseq's dictionary, (V,).
        source: its file, for messages.
    """

    symbols: List[str]
    counts: List[int]
    order: Tensor
    source: str

    def rows(self, tensor: Tensor, what: str) -> Tensor:
        """The rows of *tensor* (V, …) in the order of fairseq's dictionary.

        Args:
            tensor: one row per foreign number.
            what: its name and file, for the error message.

        Raises:
            UsageError: the number of rows differs from the size of the vocabulary.
        """
        rows = len(tensor) if tensor.dim() else 1
        if tensor.dim() == 0 or rows != len(self.order):
            raise UsageError(
                f"{what} has {rows} rows, but {self.source} has {len(self.order)} symbols; give "
                "the vocabulary that the model was trained with"
            )
        return tensor[self.order]

    def text(self, adds_mask: bool = True) -> str:
        """The content of dict.txt, for a task that appends ``<mask>``, or does not."""
        lines = [f"{symbol} {count}\n" for symbol, count in zip(self.symbols, self.counts)]
        return "".join(lines if adds_mask else [*lines, f"{MASK} 1\n"])


def renumber(
    symbols: Sequence[str],
    special: Dict[str, str],
    source: str,
    counts: Optional[Sequence[int]] = None,
) -> Vocabulary:
    """Put a foreign vocabulary into fairseq's order.

    Args:
        symbols: the symbols in the order of their foreign numbers.
        special: the foreign name of each of :data:`SPECIAL`.
        source: the file they come from, for messages.
        counts: frequencies, if known.

    Raises:
        UsageError: a special symbol is missing, a symbol occurs twice, or fairseq could not read a
            symbol back.
    """
    ordinary = ordinary_symbols(symbols, special, source)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    leading = [numbers[special[name]] for name in LEADING]
    order = [*leading, *ordinary, numbers[special[MASK]]]
    return Vocabulary(
        [symbols[number] for number in ordinary],
        [1 if counts is None else counts[number] for number in ordinary],
        torch.tensor(order),
        source,
    )


def read_vocabulary(path: str, file: Optional[str]) -> Vocabulary:
    """Read the vocabulary of a folder of transformers, from vocab.txt or tokenizer.json.

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
