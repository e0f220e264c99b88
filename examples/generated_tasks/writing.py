"""Write the data of a generated task in fairseq's format, with a test set for each length.

    make.py reverse data/reverse --lengths 1-20 --test-lengths 20,40,80

LIST has lengths and ranges, such as 1-20,30 or 1-19:2; the defaults are 1-10, and for tests
5,10,15,20,30,40, without lengths that the task lacks.  For translation, input and output are pairs;
for other families, a line has an input, the symbol <answer> and the output.  No test input is in
the training data, except at lengths with fewer than eight inputs; make.py names these lengths.
"""

import argparse
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence, Set, Tuple

import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.utils import import_user_module

from fairseq_posenc.basics.errors import UsageError
from generated_tasks import GENERATED_TASKS
from generated_tasks.registry import ANSWER, FAMILIES, LANGUAGE_MODELING, TRANSLATION, find
from generated_tasks.splits import Settings, split

SIDES = ("input", "output")  # the languages of a translation
_LONGEST = 100_000  # symbols of an input; larger lengths are refused
_PART = re.compile(r"\s*(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?\s*", re.ASCII)


def read_lengths(text: str) -> Tuple[int, ...]:
    """Parse a list of lengths and ranges; returns lengths in increasing order.

    >>> read_lengths("1-3,8"), read_lengths("1-6:2")
    ((1, 2, 3, 8), (1, 3, 5))

    Raises:
        ArgumentTypeError: *text* is not such a list.
    """
    found: Set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        first, last, step = match.groups() if match else ("0", None, None)
        lengths = range(int(first), int(last or first) + 1, max(1, int(step or 1)))
        if not lengths or not lengths[0] or lengths[-1] > _LONGEST or step == "0":
            raise argparse.ArgumentTypeError(
                f"{text}: expected lengths from 1 to {_LONGEST:,}, such as 1-20,30 or 1-19:2"
            )
        found.update(lengths)
    return tuple(sorted(found))


def write_task(settings: Settings, folder: str) -> str:
    """Write the data of a task: ``train``, ``valid`` and ``lengthN`` for each tested length.

    Args:
        folder: an existing folder to write to.

    Returns:
        a message that says what was written.
    """
    task, found = find(settings.task), split(settings)
    parts = {"train": found.train, "valid": found.valid}
    parts.update({f"length{length}": samples for length, samples in found.test.items()})
    dictionary = Dictionary()
    for symbol in task.symbols if settings.family == TRANSLATION else (*task.symbols, ANSWER):
        dictionary.add_symbol(symbol)
    texts: Dict[str, List[List[str]]] = {}
    for name, samples in parts.items():
        if settings.family == TRANSLATION:
            for place, side in enumerate(SIDES):
                texts[f"{name}.{'-'.join(SIDES)}.{side}"] = [one[place] for one in samples]
        else:
            texts[name] = [[*given, ANSWER, *answer] for given, answer in samples]
    for end in [f".{side}" for side in SIDES] if settings.family == TRANSLATION else [""]:
        dictionary.save(os.path.join(folder, f"dict{end}.txt"))
    for name, lines in texts.items():
        _write(os.path.join(folder, name), lines, dictionary)
    Path(folder, "generated.json").write_text(json.dumps(settings._asdict(), indent=2) + "\n")
    longest = max(len(line) for lines in texts.values() for line in lines) + 1
    counts = ", ".join(f"{name} {len(samples):,}" for name, samples in parts.items())
    said = f"{counts} samples of at most {longest} symbols"
    if found.shared:
        shared = ", ".join(map(str, found.shared))
        said += f"\nthe training data contain the few test inputs of length {shared}"
    return said


def _write(path: str, lines: Sequence[Sequence[str]], dictionary: Any) -> None:
    builder = indexed_dataset.make_builder(path + ".bin", "mmap", len(dictionary))
    for line in lines:
        numbers = [dictionary.indices[symbol] for symbol in line]
        builder.add_item(torch.tensor([*numbers, dictionary.eos()], dtype=torch.int32))
    builder.finalize(path + ".idx")


def _parser() -> argparse.ArgumentParser:
    tasks = [f"  {task.name:<24}{task.summary}; {task.paper}" for task in GENERATED_TASKS.values()]
    parser = argparse.ArgumentParser(
        usage="make.py TASK OUT [flags]",
        description=(__doc__ or "").replace("%", "%%"),
        epilog="\n".join(["tasks:", *tasks]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("task", metavar="TASK")
    parser.add_argument("out", metavar="OUT", help="the folder to write")
    usual = Settings("")
    parser.add_argument("--family", choices=FAMILIES, default=LANGUAGE_MODELING)
    lengths: Any = {"type": read_lengths, "metavar": "LIST"}
    parser.add_argument("--lengths", help="for training and validation", **lengths)
    parser.add_argument("--test-lengths", help="for tests, one set per length", **lengths)
    for name, what in (
        ("samples", "training samples, of all lengths together"),
        ("valid_samples", "maximum validation samples per length"),
        ("test_samples", "maximum test samples per length"),
        ("seed", "the same seed gives the same data"),
    ):
        flag, value = "--" + name.replace("_", "-"), getattr(usual, name)
        parser.add_argument(flag, type=int, default=value, metavar="N", help=f"{what} ({value})")
    parser.add_argument("--user-dir", metavar="DIR", help="a folder with tasks of your own")
    return parser


def main(words: Sequence[str]) -> None:
    """Run the command line.

    Raises:
        UsageError: a flag has an impossible value, or the folder exists.
    """
    args = _parser().parse_args(words)
    import_user_module(argparse.Namespace(user_dir=args.user_dir))
    task, usual = find(args.task), Settings("")
    args.lengths = args.lengths or task.among(usual.lengths)
    args.test_lengths = args.test_lengths or task.among(usual.test_lengths)
    settings = Settings(*(getattr(args, name) for name in Settings._fields))
    settings.check()
    if os.path.lexists(args.out):
        raise UsageError(f"{args.out}: exists already; give a new folder")
    part = args.out.rstrip("/") + ".part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        os.makedirs(part)
        said = write_task(settings, part)
        os.rename(part, args.out)
    except OSError as error:
        raise UsageError(f"{args.out}: was not written ({error.strerror or error})") from error
    print(f"{args.out}: {said}")
