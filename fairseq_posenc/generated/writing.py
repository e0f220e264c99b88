"""Writing generated data as fairseq reads them.

For ``translation`` there are inputs and outputs.  For the others an input, the symbol
``<answer>`` and the output are one line.
"""

import os
from random import Random
from typing import Any, Dict, List, NamedTuple, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text, read_json_object, write_text
from fairseq_posenc.generated.registry import (
    ANSWER,
    GENERATED_TASKS,
    TRANSLATION,
    GeneratedTask,
)
from fairseq_posenc.generated.settings import Settings
from fairseq_posenc.generated.splits import Sample, split

SIDES = ("input", "output")  # the languages of a translation
_SOME = 20  # samples that tell how long others are
ABOUT = "generated.json"
_MADE_BY = "make it with fairseq-posenc generate-task"


class Written(NamedTuple):
    """What a data folder holds."""

    settings: Settings  # what decided the data
    samples: Dict[str, int]  # by split; the tests by their names
    # symbols of the longest input and of the longest output, or of the longest line, with the end
    longest: Tuple[int, ...]
    shared: Tuple[int, ...]  # lengths whose test inputs are in the training data, too


def test_name(length: int) -> str:
    """The subset of the data that tests a length.

    >>> test_name(20)
    'length20'
    """
    return f"length{length}"


def write_task(settings: Settings, folder: str) -> Written:
    """Write the data of a task, ``train``, ``valid`` and for each tested length ``lengthN``.

    Args:
        folder: an existing folder to write to.
    """
    task, family = GENERATED_TASKS.find(settings.task), settings.family
    found = split(task, settings)
    parts = {"train": found.train, "valid": found.valid}
    parts.update({test_name(length): samples for length, samples in found.test.items()})
    dictionary = _dictionary(task, family)
    longest: List[int] = []
    if family == TRANSLATION:
        for side, place in zip(SIDES, (0, 1)):
            dictionary.save(os.path.join(folder, f"dict.{side}.txt"))
            lines = {
                f"{name}.{'-'.join(SIDES)}.{side}": [sample[place] for sample in samples]
                for name, samples in parts.items()
            }
            longest.append(_write(folder, lines, dictionary))
    else:
        dictionary.save(os.path.join(folder, "dict.txt"))
        lines = {name: [_line(sample) for sample in samples] for name, samples in parts.items()}
        longest.append(_write(folder, lines, dictionary))
    samples = {name: len(part) for name, part in parts.items()}
    written = Written(settings, samples, tuple(longest), tuple(found.shared))
    content = {**written._asdict(), "settings": settings._asdict()}
    with write_text(os.path.join(folder, ABOUT)) as stream:
        stream.write(json_text(content))
    return written


def longest_of_some(settings: Settings, length: int) -> Tuple[int, ...]:
    """The longest of a few samples of inputs of one *length*, as in :attr:`Written.longest`.

    A check can use this length before data are written; other samples are hardly longer.
    """
    task, random = GENERATED_TASKS.find(settings.task), Random(str(settings.seed))
    some = [task.sample(length, random) for _ in range(_SOME)]
    if settings.family == TRANSLATION:
        return tuple(max(len(sample[place]) for sample in some) + 1 for place in (0, 1))
    return (max(len(_line(sample)) for sample in some) + 1,)


def _line(sample: Sample) -> List[str]:
    given, answer = sample
    return [*given, ANSWER, *answer]


def _dictionary(task: GeneratedTask, family: str) -> Any:
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol in task.symbols if family == TRANSLATION else (*task.symbols, ANSWER):
        dictionary.add_symbol(symbol)
    return dictionary


def _write(folder: str, parts: Dict[str, List[List[str]]], dictionary: Any) -> int:
    """Write lines of symbols by the name of their file; the length of the longest."""
    import torch
    from fairseq.data import indexed_dataset

    for name, lines in parts.items():
        path = os.path.join(folder, name)
        builder = indexed_dataset.make_builder(path + ".bin", "mmap", len(dictionary))
        for line in lines:
            numbers = [dictionary.indices[symbol] for symbol in line]
            builder.add_item(torch.tensor([*numbers, dictionary.eos()], dtype=torch.int32))
        builder.finalize(path + ".idx")
    return max(len(line) for lines in parts.values() for line in lines) + 1


def read_written(folder: str) -> Written:
    """What a data folder holds.

    Raises:
        UsageError: it was not written by :func:`write_task`.
    """
    path = os.path.join(folder, ABOUT)
    found = read_json_object(path, path, _MADE_BY)
    try:
        settings = Settings(**{name: _plain(value) for name, value in found["settings"].items()})
        return Written(settings, found["samples"], *map(tuple, (found["longest"], found["shared"])))
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: does not describe generated data ({error}); {_MADE_BY}"
        ) from error


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
