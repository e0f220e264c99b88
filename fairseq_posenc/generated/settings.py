"""What decides the data of a task, from the command line or from the plan of a study."""

from typing import Any, Dict, NamedTuple, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.yaml_file import count, keys, named, one_of, several, text
from fairseq_posenc.generated.lengths import read_lengths
from fairseq_posenc.generated.registry import FAMILIES, GENERATED_TASKS, LANGUAGE_MODELING


class Settings(NamedTuple):
    """What decides the data of a task; all but the task have defaults."""

    task: str  # the name in the registry
    family: str = LANGUAGE_MODELING  # one of the families of models
    lengths: Tuple[int, ...] = tuple(range(1, 11))  # lengths of training and validation
    test_lengths: Tuple[int, ...] = (5, 10, 15, 20, 30, 40)  # the lengths to test
    samples: int = 20_000  # training samples, of all lengths together
    valid_samples: int = 50  # the most for each length of training
    test_samples: int = 200  # the most for each length to test
    seed: int = 1

    def check(self) -> None:
        """Refuse what the task cannot make.

        Raises:
            UsageError: naming the setting as the command line does, its value, and what would work.
        """
        task = GENERATED_TASKS.find(self.task)
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


def _lengths(value: Any) -> Tuple[int, ...]:
    """Reads lengths of YAML, which may be a number, a text or a list of either."""
    return read_lengths(",".join(map(text, value)) if isinstance(value, list) else text(value))


_OF_TASK = {"lengths": _lengths, "test_lengths": _lengths, "samples": count}
_of_all = keys(
    {
        "family": one_of(*FAMILIES),
        "tasks": lambda value: _tasks(value),
        "valid_samples": count,
        "test_samples": count,
        "seed": count,
        **_OF_TASK,
    },
    needed=("tasks",),
)


def _tasks(value: Any) -> Dict[str, Dict[str, Any]]:
    """Reads a list of tasks, or settings by task."""
    by_name = {name: {} for name in several(text)(value)} if isinstance(value, list) else value
    if not by_name:
        raise ValueError("expected a list of tasks, or settings by task")
    return named(lambda one: keys(_OF_TASK)(one or {}), "settings by task")(by_name)


def read_settings(value: Any) -> Tuple[Settings, ...]:
    """Reads the settings of several tasks, which have what is given beside them in common.

    >>> read_settings({"tasks": ["copy"], "lengths": "1-3", "seed": 2})[0][:3]
    ('copy', 'language_modeling', (1, 2, 3))

    Raises:
        ValueError: naming the key, its value, and what would work.
    """
    shared = _of_all(value)
    tasks = shared.pop("tasks")
    return tuple(Settings(**{**shared, **own, "task": name}) for name, own in tasks.items())
