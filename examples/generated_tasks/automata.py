"""Strings that are read symbol by symbol: parity and counting as controls, and regular languages.

Delétang et al. 2022, arXiv 2207.02098, appendix A; parity also in Kazemnejad et al. 2023, arXiv
2305.19466.  A Transformer of fixed depth, with any position encoding, is not expected to solve
parity and counting beyond its training lengths (Hahn 2020, arXiv 1906.06755).
"""

from random import Random
from typing import Tuple

from generated_tasks.registry import WRITERS, Symbols, register_generated_task
from generated_tasks.strings import BITS, DELETANG, DIGITS, KAZEMNEJAD

_UNIT = "symbols of the string"
EVEN, ODD = "even", "odd"
MOVES = {"stay": 0, "right": 1, "left": -1}
OPERATORS = ("+", "-", "*")
CYCLE = 5  # positions on the circle, and the modulus of the arithmetic


def _parity(number: int) -> Symbols:
    return [ODD if number % 2 else EVEN]


@register_generated_task(
    "parity",
    paper=KAZEMNEJAD,
    summary="whether the number of 1s is even or odd",
    unit=_UNIT,
    symbols=(*BITS, EVEN, ODD),
)
def parity(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A binary string, and whether its number of 1s is even."""
    string = random.choices(BITS, k=length)
    return string, _parity(string.count("1"))


@register_generated_task(
    "counting",
    paper="Hahn 2020, arXiv 1906.06755 (parity)",
    summary="the number of 1s in decimal digits",
    unit=_UNIT,
    symbols=(*BITS, *DIGITS),
    families=WRITERS,
)
def counting(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A binary string, and its number of 1s; all numbers are equally probable."""
    ones = random.randint(0, length)
    string = ["1"] * ones + ["0"] * (length - ones)
    random.shuffle(string)
    return string, list(str(ones))


@register_generated_task(
    "even_pairs",
    paper=DELETANG,
    summary="whether the number of neighbouring pairs 01 and 10 is even or odd",
    unit=_UNIT,
    symbols=(*BITS, EVEN, ODD),
)
def even_pairs(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A binary string, and whether an even number of neighbouring pairs differ."""
    string = random.choices(BITS, k=length)
    return string, _parity(sum(one != two for one, two in zip(string, string[1:])))


@register_generated_task(
    "cycle_navigation",
    paper=DELETANG,
    summary="the position on a circle of five positions after moves that start at 0",
    unit="moves",
    symbols=(*MOVES, *DIGITS[:CYCLE]),
)
def cycle_navigation(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Moves on a circle, and the position where they end."""
    moves = random.choices(list(MOVES), k=length)
    return moves, [str(sum(map(MOVES.__getitem__, moves)) % CYCLE)]


@register_generated_task(
    "modular_arithmetic",
    paper=DELETANG,
    summary="the value, modulo 5, of a formula with +, - and *",
    unit="symbols of the formula",
    symbols=(*DIGITS[:CYCLE], *OPERATORS),
    step=2,
)
def modular_arithmetic(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A formula of numbers below 5, and its value modulo 5; * is computed before + and -."""
    formula = [random.choice(DIGITS[:CYCLE])]
    for _ in range(length // 2):
        formula += [random.choice(OPERATORS), random.choice(DIGITS[:CYCLE])]
    total, term = 0, int(formula[0])
    for operator, digit in zip(formula[1::2], map(int, formula[2::2])):
        if operator == "*":
            term = term * digit % CYCLE
        else:
            total, term = total + term, digit if operator == "+" else -digit
    return formula, [str((total + term) % CYCLE)]
