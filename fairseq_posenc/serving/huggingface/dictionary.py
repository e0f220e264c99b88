"""The symbols of a tokenizer of transformers as the lines of fairseq's dict.txt."""

from typing import List, Mapping, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.huggingface.tokenizer import RESERVED, find_files, read_symbols


def ordinary_symbols(symbols: Sequence[str], special: Mapping[str, str], source: str) -> List[int]:
    """The numbers of all symbols but the special ones, which make the lines of dict.txt.

    Args:
        special: the tokenizer's name of each of fairseq's special symbols.

    Raises:
        UsageError: a special symbol is missing, a symbol occurs twice, or fairseq could not read a
            symbol back.
    """
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    if len(numbers) < len(symbols):
        twice = next(s for number, s in enumerate(symbols) if numbers[s] != number)
        raise UsageError(
            f"{source}: {twice!r} occurs twice (numbers {symbols.index(twice)} and "
            f"{numbers[twice]}), and fairseq refuses such a dictionary; rename one of them"
        )
    for ours, theirs in special.items():
        if theirs not in numbers:
            raise UsageError(f"{source}: has no {theirs!r}, which corresponds to fairseq's {ours}")
    used = set(special.values())
    ordinary = [number for number, symbol in enumerate(symbols) if symbol not in used]
    for number in ordinary:
        symbol = symbols[number]
        if symbol in RESERVED:
            raise UsageError(
                f"{source}: the ordinary symbol {symbol!r} (number {number}) is one that fairseq "
                "reserves; rename it"
            )
        if symbol.split() != [symbol]:
            raise UsageError(
                f"{source}: the symbol {symbol!r} (number {number}) is empty or contains white "
                "space, at which fairseq splits text; rename it"
            )
    return ordinary


def dictionary(folder: str) -> str:
    """The dict.txt of a folder's tokenizer, the same as that of its imported model."""
    files = find_files(folder)
    symbols, source = read_symbols(files)
    ordinary = ordinary_symbols(symbols, files.special(), source)
    return "".join(f"{symbols[number]} 1\n" for number in ordinary)
