"""Small languages with a grammar: SCAN's commands and ListOps.

Lake and Baroni 2018, arXiv 1711.00350, appendix; Nangia and Bowman 2018, arXiv 1804.06028.
"""

from random import Random
from statistics import median_low
from typing import Callable, Dict, List, Tuple

from generated_tasks.registry import WRITERS, Symbols, register_generated_task
from generated_tasks.strings import DIGITS

#: The actions of SCAN's verbs, and of its turns.
VERBS = {"walk": "WALK", "run": "RUN", "look": "LOOK", "jump": "JUMP", "turn": ""}
TURNS = {"left": "LTURN", "right": "RTURN"}
TIMES = {"": 1, "twice": 2, "thrice": 3}
AND, AFTER, OPPOSITE, AROUND = "and", "after", "opposite", "around"


def _phrase(random: Random) -> Tuple[List[str], List[str]]:
    """A phrase (a verb with a direction and a number of repetitions), and its actions."""
    verb, turn = random.choice(list(VERBS)), random.choice(list(TURNS))
    action, towards = [VERBS[verb]] if VERBS[verb] else [], TURNS[turn]
    ways = {
        (turn,): [towards, *action],
        (OPPOSITE, turn): [towards, towards, *action],
        (AROUND, turn): [towards, *action] * 4,
    }
    if action:  # "turn" always has a direction
        ways[()] = action
    way, actions = random.choice(list(ways.items()))
    times, count = random.choice(list(TIMES.items()))
    return [verb, *way, *filter(None, [times])], actions * count


@register_generated_task(
    "scan",
    paper="Lake and Baroni 2018, arXiv 1711.00350",
    summary="the actions that a command in words asks for",
    unit="phrases, joined by 'and' or 'after'",
    symbols=(
        *(*VERBS, *TURNS, *filter(None, TIMES), AND, AFTER, OPPOSITE, AROUND),
        *(*filter(None, VERBS.values()), *TURNS.values()),
    ),
    families=WRITERS,
)
def scan(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A command, and its actions.

    SCAN has at most two phrases.  Here the actions of each further phrase follow those of all
    earlier phrases or, if "after" joins the phrase, precede them.
    """
    command, actions = _phrase(random)
    for _ in range(length - 1):
        link = random.choice((AND, AFTER))
        words, more = _phrase(random)
        command = [*command, link, *words]
        actions = actions + more if link == AND else more + actions
    return command, actions


#: ListOps' operators, as functions of digits.
LIST_OPERATORS: Dict[str, Callable[[List[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    "[MED": median_low,
    "[SM": lambda digits: sum(digits) % 10,
}
END, DEPTH, WIDEST = "]", 3, 5


@register_generated_task(
    "listops",
    paper="Nangia and Bowman 2018, arXiv 1804.06028",
    summary=f"the value of operators on lists of digits, nested at most {DEPTH} deep",
    unit="digits",
    symbols=(*LIST_OPERATORS, END, *DIGITS),
    least=2,
)
def listops(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A list with *length* digits in all, and its value.

    Lists have two to five entries, but the innermost lists have all digits that are left.  The
    median of an even number of digits is the lower of the middle two, because values are digits.
    """
    symbols, value = _list(length, DEPTH, random)
    return symbols, [str(value)]


def _list(digits: int, depth: int, random: Random) -> Tuple[List[str], int]:
    if digits == 1:
        digit = random.choice(DIGITS)
        return [digit], int(digit)
    entries = digits if depth == 1 else random.randint(2, min(WIDEST, digits))
    cuts = [0, *sorted(random.sample(range(1, digits), entries - 1)), digits]
    parts = [_list(end - start, depth - 1, random) for start, end in zip(cuts, cuts[1:])]
    operator = random.choice(list(LIST_OPERATORS))
    inner = [symbol for symbols, _ in parts for symbol in symbols]
    return [operator, *inner, END], LIST_OPERATORS[operator]([value for _, value in parts])
