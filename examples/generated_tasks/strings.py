"""Strings that are moved around: copied, reversed, sorted, duplicated.

Kazemnejad et al. 2023, arXiv 2305.19466, appendix on tasks; Delétang et al. 2022, arXiv 2207.02098,
appendix A.  Delétang et al. pad all outputs to one length; here outputs are not padded.
"""

from random import Random
from typing import List, Tuple

from generated_tasks.registry import WRITERS, Symbols, register_generated_task

LETTERS = tuple("abcdefgh")
BITS = ("0", "1")
DIGITS = tuple("0123456789")
PUSH_0, PUSH_1, POP = "push0", "push1", "pop"
MISSING = "_"

KAZEMNEJAD = "Kazemnejad et al. 2023, arXiv 2305.19466"
DELETANG = "Delétang et al. 2022, arXiv 2207.02098"
ZHOU = "Zhou et al. 2023, arXiv 2310.16028"
_UNIT = "symbols of the string"


@register_generated_task(
    "copy", paper=KAZEMNEJAD, summary="the string itself", unit=_UNIT, symbols=LETTERS
)
def copy(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A string of random letters, and the same again."""
    string = random.choices(LETTERS, k=length)
    return string, string


@register_generated_task(
    "copy_repeats",
    paper=ZHOU,
    summary="the string itself, of only two letters, which do not identify positions",
    unit=_UNIT,
    symbols=LETTERS[:2],
)
def copy_repeats(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A string of two letters, and the same again."""
    string = random.choices(LETTERS[:2], k=length)
    return string, string


@register_generated_task(
    "copy_unique",
    paper=ZHOU,
    summary="the string itself, in which no symbol occurs twice",
    unit=_UNIT,
    symbols=[f"w{number}" for number in range(100)],
    most=100,
)
def copy_unique(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Different words in random order, and the same again."""
    string = [f"w{number}" for number in random.sample(range(100), length)]
    return string, string


@register_generated_task(
    "reverse", paper=KAZEMNEJAD, summary="the string backwards", unit=_UNIT, symbols=LETTERS
)
def reverse(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A string of random letters, and its reversal."""
    string = random.choices(LETTERS, k=length)
    return string, string[::-1]


@register_generated_task(
    "sort",
    paper=f"{DELETANG} (bucket sort)",
    summary="the digits of the string in increasing order",
    unit=_UNIT,
    symbols=DIGITS,
)
def sort(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Random digits, and the same digits sorted.  Delétang et al. use five different digits."""
    string = random.choices(DIGITS, k=length)
    return string, sorted(string)


@register_generated_task(
    "duplicate", paper=DELETANG, summary="the string, twice", unit=_UNIT, symbols=BITS
)
def duplicate(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A binary string, and the same twice."""
    string = random.choices(BITS, k=length)
    return string, string * 2


@register_generated_task(
    "missing_duplicate",
    paper=DELETANG,
    summary="the symbol that is missing in one of two copies of a string",
    unit=_UNIT,
    symbols=(*BITS, MISSING),
    least=2,
    step=2,
)
def missing_duplicate(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Two copies of a binary string, with a gap at a random place, and the missing symbol."""
    string = random.choices(BITS, k=length // 2) * 2
    place = random.randrange(length)
    return [*string[:place], MISSING, *string[place + 1 :]], [string[place]]


@register_generated_task(
    "odds_first",
    paper=DELETANG,
    summary="the symbols at odd positions, then the symbols at even positions",
    unit=_UNIT,
    symbols=BITS,
)
def odds_first(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A binary string, and its symbols 1, 3, 5, … and then 2, 4, 6, …"""
    string = random.choices(BITS, k=length)
    return string, string[::2] + string[1::2]


@register_generated_task(
    "stack",
    paper=f"{DELETANG} (stack manipulation)",
    summary="the stack after all actions, from its top to its bottom",
    unit="symbols of the stack and actions",
    symbols=(*BITS, PUSH_0, PUSH_1, POP),
    families=WRITERS,
)
def stack(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A binary stack from bottom to top, then actions; and the final stack from top to bottom.

    A pop of an empty stack changes nothing.
    """
    content: List[str] = random.choices(BITS, k=random.randint(1, length))
    actions = random.choices((PUSH_0, PUSH_1, POP), k=length - len(content))
    given = [*content, *actions]
    for action in actions:
        if action == POP:
            del content[-1:]
        else:
            content.append(BITS[action == PUSH_1])
    return given, content[::-1]
