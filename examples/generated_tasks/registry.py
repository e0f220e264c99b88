"""The registry of generated tasks."""

import math
from random import Random
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError

#: The families of models, named like fairseq's tasks.
TRANSLATION, LANGUAGE_MODELING, MASKED_LM = "translation", "language_modeling", "masked_lm"
FAMILIES = (TRANSLATION, LANGUAGE_MODELING, MASKED_LM)
#: The families whose models predict where an output ends.
WRITERS = (TRANSLATION, LANGUAGE_MODELING)
#: The symbol between input and output, where both are in one text.
ANSWER = "<answer>"
_RESERVED = (ANSWER, "<s>", "<pad>", "</s>", "<unk>", "<mask>")  # the rest are fairseq's own

Symbols = Sequence[str]
Draw = Callable[[int, Random], Tuple[Symbols, Symbols]]


class GeneratedTask(NamedTuple):
    """A task whose data are generated.

    Args:
        name: made of letters, digits and underscores.
        paper: authors, year and arXiv number of the definition.
        summary: what the output is.
        unit: what the length counts.
        symbols: all symbols of inputs and outputs; no symbol has white space.
        draw: a function of a length and a random generator, the only source of random numbers; it
            returns an input and its output.
        families: the families of models for which the task makes sense.
        least: the smallest length.
        step: lengths are *least* plus a multiple of this number.
        most: the largest length, if there is one.
    """

    name: str
    paper: str
    summary: str
    unit: str
    symbols: Tuple[str, ...]
    draw: Draw
    families: Tuple[str, ...] = FAMILIES
    least: int = 1
    step: int = 1
    most: Optional[int] = None

    def sample(self, length: int, random: Random) -> Tuple[List[str], List[str]]:
        """An input and its output."""
        given, answer = self.draw(length, random)
        return list(given), list(answer)

    def check_lengths(self, lengths: Iterable[int], flag: str) -> None:
        """Refuse lengths that the task does not have.

        Args:
            flag: the flag that gave the lengths, for messages.

        Raises:
            UsageError: the message names the first such length, and the task's lengths.
        """
        for length in lengths:
            if not self.among((length,)):
                raise UsageError(f"{flag} {length}: {self.name} has {self._lengths()}")

    def among(self, lengths: Iterable[int]) -> Tuple[int, ...]:
        """The *lengths* that the task has."""
        most = math.inf if self.most is None else self.most
        return tuple(
            length
            for length in lengths
            if self.least <= length <= most and (length - self.least) % self.step == 0
        )

    def check_family(self, family: str, flag: str) -> None:
        """Refuse a family of models for which the task makes no sense.

        Raises:
            UsageError: the message names the families for which the task makes sense.
        """
        if family not in self.families:
            raise UsageError(f"{flag} {family}: {self.name} is for {' and '.join(self.families)}")

    def _lengths(self) -> str:
        end = "" if self.most is None else f", at most {self.most}"
        first, second = self.least, self.least + self.step
        return f"the lengths {first}, {second}, {second + self.step}, …{end} ({self.unit})"


#: All registered tasks, by name.
GENERATED_TASKS: Dict[str, GeneratedTask] = {}


def find(name: str) -> GeneratedTask:
    """The task that is registered under *name*.

    Raises:
        UsageError: there is no such task; the message lists the names.
    """
    if name not in GENERATED_TASKS:
        raise UsageError(f"TASK {name}: must be {' or '.join(GENERATED_TASKS)}")
    return GENERATED_TASKS[name]


def register_generated_task(
    name: str,
    *,
    paper: str,
    summary: str,
    unit: str,
    symbols: Iterable[str],
    families: Tuple[str, ...] = FAMILIES,
    least: int = 1,
    step: int = 1,
    most: Optional[int] = None,
) -> Callable[[Draw], Draw]:
    """Decorator that registers a function of a length and a ``random.Random`` as a task.

    The arguments are those of :class:`GeneratedTask`.

    Raises:
        UsageError: the name is taken, or a symbol is reserved or has white space.
    """
    known = tuple(dict.fromkeys(symbols))
    for symbol in known:
        if symbol in _RESERVED or symbol.split() != [symbol]:
            raise UsageError(
                f"task {name}: {symbol!r}: a symbol has no white space, and must not be "
                f"{', '.join(_RESERVED)}"
            )

    def add(draw: Draw) -> Draw:
        sizes = (least, step, most)
        task = GeneratedTask(name, paper, summary, unit, known, draw, families, *sizes)
        if GENERATED_TASKS.setdefault(name, task) is not task:
            raise UsageError(f"task {name}: registered twice; choose another name")
        return draw

    return add
