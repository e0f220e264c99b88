"""Finding what was said much earlier: associative recall and a passkey, at growing distance.

Arora et al. 2023, arXiv 2312.04927, section 3; Mohtashami and Jaggi 2023, arXiv 2305.16300.
"""

from random import Random
from typing import List, Tuple

from generated_tasks.registry import Symbols, register_generated_task
from generated_tasks.strings import DIGITS

PAIRS = 4  # pairs of a key and its value
KEYS = tuple(f"k{number}" for number in range(16))
VALUES = tuple(f"v{number}" for number in range(16))
NOISE, ASK = ".", "?"
HAY = ("the", "grass", "is", "green", "the", "sky", "is", "blue", "the", "sun", "is", "yellow")
NEEDLE, PASSKEY_DIGITS = "key", 4


@register_generated_task(
    "recall",
    paper="Arora et al. 2023, arXiv 2312.04927 (MQAR)",
    summary=f"the values of {PAIRS} keys, asked for in random order",
    unit="symbols of the text that holds the pairs, without the questions",
    symbols=(*KEYS, *VALUES, NOISE, ASK),
    least=2 * PAIRS,
)
def recall(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """Pairs of a key and its value, with noise between them, then all keys; and their values.

    Arora et al. draw the distance of each question from a power law; here all questions come after
    the text, and the distance grows with the length.
    """
    keys = random.sample(KEYS, PAIRS)
    pairs = [(key, random.choice(VALUES)) for key in keys]
    places = sorted(random.sample(range(length - PAIRS), PAIRS))
    text: List[str] = []
    for number, (place, pair) in enumerate(zip(places, pairs)):
        text += [NOISE] * (place + number - len(text))  # each earlier pair has two symbols
        text += pair
    text += [NOISE] * (length - len(text))
    random.shuffle(pairs)
    return [*text, ASK, *(key for key, _ in pairs)], [value for _, value in pairs]


@register_generated_task(
    "passkey",
    paper="Mohtashami and Jaggi 2023, arXiv 2305.16300",
    summary=f"a number of {PASSKEY_DIGITS} digits that occurs once in an irrelevant text",
    unit="words of the text around the number",
    symbols=(*HAY, NEEDLE, *DIGITS, ASK),
)
def passkey(length: int, random: Random) -> Tuple[Symbols, Symbols]:
    """A repetitive text with a number at a random place, and that number."""
    number = random.choices(DIGITS, k=PASSKEY_DIGITS)
    text = [HAY[place % len(HAY)] for place in range(length)]
    place = random.randint(0, length)
    return [*text[:place], NEEDLE, *number, *text[place:], ASK, NEEDLE], number
