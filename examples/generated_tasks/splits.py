"""The samples of a task: training, validation and test data that have no input in common."""

from random import Random
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from fairseq_posenc.basics.errors import UsageError
from generated_tasks.registry import LANGUAGE_MODELING, GeneratedTask, find

Sample = Tuple[List[str], List[str]]  # an input and its output
_FEW = 8  # a length with fewer different inputs shares them between training and tests
_POOL = 4  # draws per input to hold out, to estimate how many different inputs there are


class Settings(NamedTuple):
    """The settings that determine the data of a task; all but ``task`` have defaults."""

    task: str  # the name in the registry
    family: str = LANGUAGE_MODELING  # a family of models
    lengths: Tuple[int, ...] = tuple(range(1, 11))  # lengths of training and validation
    test_lengths: Tuple[int, ...] = (5, 10, 15, 20, 30, 40)  # the lengths to test
    samples: int = 20_000  # training samples, of all lengths together
    valid_samples: int = 50  # the maximum for each training length
    test_samples: int = 200  # the maximum for each length to test
    seed: int = 1

    def check(self) -> None:
        """Refuse settings that do not fit the task.

        Raises:
            UsageError: the message names the flag of the setting, its value, and what would work.
        """
        task = find(self.task)
        task.check_family(self.family, "--family")
        task.check_lengths(self.lengths, "--lengths")
        task.check_lengths(self.test_lengths, "--test-lengths")
        for name in ("samples", "valid_samples", "test_samples"):
            if getattr(self, name) < 1:
                flag = "--" + name.replace("_", "-")
                raise UsageError(f"{flag} {getattr(self, name)}: must be at least 1")
        if self.samples < len(self.lengths):
            raise UsageError(
                f"--samples {self.samples}: must be at least {len(self.lengths)}, one for each of "
                "--lengths"
            )


class Splits(NamedTuple):
    """The samples of a task."""

    train: List[Sample]
    valid: List[Sample]
    test: Dict[int, List[Sample]]  # by length
    # lengths with so few inputs that the training data contain the test inputs
    shared: List[int]


def split(settings: Settings) -> Splits:
    """Draw the samples of a task; the same arguments give the same samples.

    All lengths have equally many training samples, or differ by one.  Test and validation sets have
    no input twice, and share none with the training data, unless a length has fewer than eight
    inputs.  At most a quarter of the inputs found for a length is held out, so that lengths with
    few inputs have smaller sets.
    """
    task, found = find(settings.task), Splits([], [], {}, [])
    lengths, seed = settings.lengths, settings.seed
    for length in sorted({*lengths, *settings.test_lengths}):
        trained, tested = length in lengths, length in settings.test_lengths
        tests = settings.test_samples * tested
        wanted = tests + settings.valid_samples * trained
        pool = _different(_drawing(task, length, "held out", seed), _POOL * wanted)
        few = trained and len(pool) < _FEW
        held = pool if few or not trained else pool[: min(wanted, len(pool) // _POOL)]
        for_test = round(len(held) * tests / wanted)
        for_test = min(max(for_test, tested), len(held) - trained)  # neither set is empty
        valid = held if few else held[for_test:]
        if tested:
            found.test[length] = (held if few else held[:for_test])[: settings.test_samples]
        if trained:
            found.valid.extend(valid[: settings.valid_samples])
            found.shared.extend([length] * few)
            number = _share(settings.samples, lengths, length)
            avoided: Set[Tuple[str, ...]] = set() if few else {tuple(one) for one, _ in held}
            draw = _drawing(task, length, "train", seed)
            found.train.extend(_without(draw, avoided, number))
    return found


def _drawing(task: GeneratedTask, length: int, what: str, seed: int) -> Callable[[], Sample]:
    random = Random(f"{task.name} {length} {what} {seed}")  # a string seeds all machines alike
    return lambda: task.sample(length, random)


def _different(draw: Callable[[], Sample], number: int) -> List[Sample]:
    """Draw *number* samples, and keep the first one with each input."""
    found: Dict[Tuple[str, ...], Sample] = {}
    for _ in range(number):
        sample = draw()
        found.setdefault(tuple(sample[0]), sample)
    return list(found.values())


def _without(
    draw: Callable[[], Sample], avoided: Set[Tuple[str, ...]], number: int
) -> Iterator[Sample]:
    """Draw *number* samples, none of which has an input in *avoided*."""
    while number:
        sample = draw()
        if tuple(sample[0]) not in avoided:
            number -= 1
            yield sample


def _share(number: int, lengths: Sequence[int], length: int) -> int:
    """The number of samples, of *number* in all, with *length*; counts differ by at most one."""
    place = sorted(lengths).index(length)
    return number * (place + 1) // len(lengths) - number * place // len(lengths)
