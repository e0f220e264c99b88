"""Addition and multiplication of decimal numbers, with plain and with reversed digits.

Kazemnejad et al. 2023, arXiv 2305.19466; reversed digits: Zhou et al. 2024, arXiv 2402.09371,
without their index hints and random spaces.  The first number has exactly as many digits as the
length, so no input belongs to two lengths.
"""

from random import Random
from typing import List, Tuple

from generated_tasks.registry import Symbols, register_generated_task
from generated_tasks.strings import BITS, DELETANG, DIGITS, KAZEMNEJAD

PLUS, TIMES, EQUALS = "+", "*", "="
_ZHOU = "Zhou et al. 2024, arXiv 2402.09371"
_ADDED, _FACTOR = "digits of each number", "digits of the first number"


def _number(digits: int, random: Random) -> int:
    """A random number of *digits* digits; its first digit is not 0, unless the number is 0."""
    return random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


def _written(*parts: object) -> List[str]:
    return [symbol for part in parts for symbol in str(part)]


def _reversed(*parts: object) -> List[str]:
    return [symbol for part in parts for symbol in reversed(str(part))]


@register_generated_task(
    "addition",
    paper=KAZEMNEJAD,
    summary="the sum of two numbers",
    unit=_ADDED,
    symbols=(*DIGITS, PLUS, EQUALS),
)
def addition(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Two numbers of equally many digits, and their sum."""
    one, two = _number(length, random), _number(length, random)
    return _written(one, PLUS, two, EQUALS), _written(one + two)


@register_generated_task(
    "addition_reversed",
    paper=_ZHOU,
    summary="the sum of two numbers; each number has its last digit first",
    unit=_ADDED,
    symbols=(*DIGITS, PLUS, EQUALS),
)
def addition_reversed(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Two numbers of equally many digits and their sum, each with its last digit first."""
    one, two = _number(length, random), _number(length, random)
    return _reversed(one, PLUS, two, EQUALS), _reversed(one + two)


@register_generated_task(
    "multiplication",
    paper=f"{DELETANG} (binary, of two numbers)",
    summary="the product of a number and a digit",
    unit=_FACTOR,
    symbols=(*DIGITS, TIMES, EQUALS),
)
def multiplication(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A number times a digit, and their product."""
    one, two = _number(length, random), random.randrange(10)
    return _written(one, TIMES, two, EQUALS), _written(one * two)


@register_generated_task(
    "multiplication_reversed",
    paper=f"{_ZHOU} (addition)",
    summary="the product of a number and a digit; each number has its last digit first",
    unit=_FACTOR,
    symbols=(*DIGITS, TIMES, EQUALS),
)
def multiplication_reversed(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A number and a digit to multiply, and their product; all with their last digit first."""
    one, two = _number(length, random), random.randrange(10)
    return _reversed(one, TIMES, two, EQUALS), _reversed(one * two)


@register_generated_task(
    "binary_addition",
    paper=DELETANG,
    summary="the sum of two binary numbers",
    unit="symbols of the input, including the plus sign",
    symbols=(*BITS, PLUS),
    least=3,
)
def binary_addition(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Two binary numbers of random lengths, *length* - 1 digits together, and their sum."""
    first = random.randint(1, length - 2)
    one, two = (random.choices(BITS, k=digits) for digits in (first, length - 1 - first))
    total = int("".join(one), 2) + int("".join(two), 2)
    return [*one, PLUS, *two], list(f"{total:b}")
