"""Generated tasks: every output follows from its input, by another way than it was made."""

import re
from functools import reduce
from random import Random

import pytest
from support.made_up_tasks import registry

from fairseq_posenc.basics.errors import UsageError

ANSWER, FAMILIES = registry.ANSWER, registry.FAMILIES
GENERATED_TASKS = registry.GENERATED_TASKS
register_generated_task = registry.register_generated_task

#: The number of samples by which a task is tested, of each length.
SAMPLES = 30


def number(symbols):
    return int("".join(symbols))


def sum_of(symbols, base=10):
    return sum(int(part, base) for part in "".join(symbols).rstrip("=").split("+"))


def product_of(symbols):
    one, two = "".join(symbols).rstrip("=").split("*")
    return int(one) * int(two)


def turned(symbols):
    """A formula of reversed numbers with the numbers as they are."""
    return re.sub(r"\d+", lambda found: found.group()[::-1], "".join(symbols))


def left_by(symbols):
    """What a stack holds, popped to its end; the first action begins where bits end."""
    left = ""
    for symbol in symbols:
        left = left[:-1] if symbol == "pop" else left + symbol[-1]
    return list(reversed(left))


def missing(symbols):
    half = len(symbols) // 2
    one, two = symbols[:half], symbols[half:]
    return [next(b if a == "_" else a for a, b in zip(one, two) if a != b)]


def scan(words):
    """SCAN's translation by rules on texts, phrase after phrase."""
    parts = re.split(r" (and|after) ", " ".join(words))
    done = phrase(parts[0])
    for link, part in zip(parts[1::2], parts[2::2]):
        done = done + phrase(part) if link == "and" else phrase(part) + done
    return done


def phrase(text):
    first, *rest = text.split()
    action = [] if first == "turn" else [first.upper()]
    count = {"twice": 2, "thrice": 3}.get(text.split()[-1], 1)
    turn = [word[0].upper() + "TURN" for word in rest if word in ("left", "right")]
    if "around" in rest:
        return 4 * count * (turn + action)
    return count * ((1 + ("opposite" in rest)) * turn + action)


def listops(symbols):
    text = " ".join(symbols)
    values = {
        "MAX": max,
        "MIN": min,
        "MED": lambda digits: sorted(digits)[(len(digits) - 1) // 2],
        "SM": lambda digits: reduce(lambda a, b: (a + b) % 10, digits),
    }
    inner = re.compile(r"\[(\w+)((?: \d)+) \]")
    while inner.search(text):
        text = inner.sub(
            lambda found: str(values[found.group(1)](list(map(int, found.group(2).split())))), text
        )
    return [text]


def recalled(symbols):
    at = symbols.index("?")
    return [symbols[symbols.index(key) + 1] for key in symbols[at + 1 :]]


def parity(count):
    return ["odd" if count % 2 else "even"]


#: The output of every task from its input.
OUTPUTS = {
    "copy": list,
    "copy_repeats": list,
    "copy_unique": list,
    "reverse": lambda given: list(reversed(given)),
    "sort": lambda given: [d for digit in "0123456789" for d in given if d == digit],
    "duplicate": lambda given: [*given, *given],
    "missing_duplicate": missing,
    "odds_first": lambda given: [given[i] for odd in (0, 1) for i in range(odd, len(given), 2)],
    "stack": left_by,
    "addition": lambda given: list(str(sum_of(given))),
    "addition_reversed": lambda given: list(str(sum_of(turned(given)))[::-1]),
    "multiplication": lambda given: list(str(product_of(given))),
    "multiplication_reversed": lambda given: list(str(product_of(turned(given)))[::-1]),
    "binary_addition": lambda given: list(bin(sum_of(given, base=2))[2:]),
    "parity": lambda given: parity(sum(map(int, given))),
    "counting": lambda given: list(str(sum(map(int, given)))),
    "even_pairs": lambda given: parity(given[0] != given[-1]),
    "cycle_navigation": lambda given: [str((given.count("right") - given.count("left")) % 5)],
    "modular_arithmetic": lambda given: [str(eval("".join(given)) % 5)],
    "scan": scan,
    "listops": listops,
    "recall": recalled,
    "passkey": lambda given: given[given.index("key") + 1 : given.index("key") + 5],
}


def lengths_of(task):
    """Some lengths of a task."""
    return [task.least + task.step * more for more in (0, 1, 2, 5, 11, 24)]


def test_every_task_is_tested():
    assert set(OUTPUTS) == set(GENERATED_TASKS)


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_outputs_follow_from_inputs(name):
    task = GENERATED_TASKS[name]
    for length in lengths_of(task):
        draw = Random(length)
        for _ in range(SAMPLES):
            given, answer = task.sample(length, draw)
            assert answer == OUTPUTS[name](given), given
            assert {*given, *answer} <= {*task.symbols}


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_longer_is_longer_and_the_seed_decides(name):
    task = GENERATED_TASKS[name]
    short, long = (
        [task.sample(length, Random(seed))[0] for seed in range(SAMPLES)]
        for length in (task.least, task.least + 20 * task.step)
    )
    assert max(map(len, short)) < min(map(len, long))
    again = [task.sample(task.least + 20 * task.step, Random(seed))[0] for seed in range(SAMPLES)]
    assert again == long and len(set(map(tuple, long))) > SAMPLES // 2
    assert {*task.families} <= {*FAMILIES} and task.paper and task.summary and task.unit


@pytest.mark.parametrize(
    "name, given, answer",
    [  # from the texts of the papers
        ("stack", "0 1 1 0 0 pop push0 pop", "0 1 1 0"),
        ("modular_arithmetic", "1 + 2 - 4", "4"),
        ("even_pairs", "0 0 1 0 1 1 0", "even"),
        ("cycle_navigation", "right left right", "1"),
        ("odds_first", "0 0 1 1 0 1 0 1", "0 1 0 0 0 1 1 1"),
        ("scan", "jump opposite left after walk around left",
         "LTURN WALK LTURN WALK LTURN WALK LTURN WALK LTURN LTURN JUMP"),
        ("scan", "turn left twice", "LTURN LTURN"),
        ("listops", "[MAX 2 9 [MIN 4 7 ] 0 ]", "9"),
    ],
)  # fmt: skip
def test_the_rules_of_these_tests_are_those_of_the_papers(name, given, answer):
    assert OUTPUTS[name](given.split()) == answer.split()


def test_a_task_with_impossible_symbols_or_a_name_that_is_taken_is_refused():
    about = {"paper": "", "summary": "", "unit": ""}
    for symbol in (ANSWER, "<pad>", "<mask>", "a b", ""):
        with pytest.raises(UsageError, match="has no white space"):
            register_generated_task("own", symbols=["a", symbol], **about)
    with pytest.raises(UsageError, match="copy: registered twice"):
        register_generated_task("copy", symbols="a", **about)(lambda length, random: ("a", "a"))
