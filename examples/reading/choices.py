"""Multiple choice from the published files, in the layout of sentence_ranking.

    fairseq-posenc script choices.py extract TASK SOURCE OUT
    fairseq-posenc script choices.py cut TEXT PIECES OUT [--longest 128]

`extract` reads TASK (race, c3, chid, copa, qnli) from the folder SOURCE and writes
OUT/input0/SPLIT with the passages, OUT/input1/SPLIT to OUT/inputN/SPLIT with the question and one
choice each, where N is the largest number of choices in the training set, and OUT/label/SPLIT with
the number of the right one, from 0; a choice that a question does not have is an empty line.
OUT/choices then has N, OUT/task the task and N, OUT/examples the
number of training questions, OUT/ids/SPLIT the ids, and OUT/splits the splits: train, valid, and
valid1 if the test set has answers; of RACE also valid2 and valid3, its middle and high schools.

`cut` shortens the choices in symbols to the last LONGEST ones, so that the answer stays, and
refuses those that have a text but no symbol. TEXT is a folder that `extract` wrote, PIECES that of
the same files in symbols.
"""

import os
import sys
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from published import SENTENCES, Record, read_c3, read_chid, read_copa, read_qnli, read_race

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines, write_text
from fairseq_posenc.flags.usage import documented_parser


class Task(NamedTuple):
    """A data set.

    Args:
        read: yields the records of a file or a folder.
        sources: names of the training, validation and test set and of the parts of the latter that
            are scored on their own, each a list of files or folders.
        fewest: choices of a question.
        most: choices of a question.
    """

    read: Callable[[str], Iterator[Record]]
    sources: Sequence[Sequence[str]]
    fewest: int
    most: int


TASKS: Dict[str, Task] = {
    "race": Task(read_race, (["train"], ["dev"], ["test"], ["test/middle"], ["test/high"]), 4, 4),
    "copa": Task(read_copa, (["train.jsonl"], ["val.jsonl", "dev.jsonl"], ["test.jsonl"]), 2, 2),
    "qnli": Task(read_qnli, (["train.tsv"], ["dev.tsv"]), 2, SENTENCES),
    "c3": Task(
        read_c3,
        (
            ["c3-m-train.json", "c3-d-train.json", "m-train.json", "d-train.json", "train.json"],
            ["c3-m-dev.json", "c3-d-dev.json", "m-dev.json", "d-dev.json", "dev.json"],
            ["c3-m-test.json", "c3-d-test.json", "m-test.json", "d-test.json", "test.json"],
        ),
        2,
        4,
    ),
    "chid": Task(
        read_chid,
        (
            ["train.json", "train_data.txt", "train.txt"],
            ["dev.json", "dev_data.txt", "dev.txt"],
            ["test.json", "test_data.txt", "test.txt"],
        ),
        2,
        10,
    ),
}


def records(task: Task, folder: str, names: Sequence[str]) -> List[Record]:
    """The records of the files or folders that are there, checked."""
    found: List[Record] = []
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            found += task.read(path)
    seen = set()
    for record in found:
        count = len(record.choices)
        if not task.fewest <= count <= task.most:
            expected = f"{task.fewest} to {task.most}" if task.fewest < task.most else task.most
            raise UsageError(
                f"{record.id}: has {count} choices, and questions of this task have {expected}"
            )
        if record.label is not None and not 0 <= record.label < count:
            raise UsageError(f"{record.id}: its answer is none of the {count} choices")
        if record.id in seen:
            raise UsageError(f"{record.id}: occurs twice")
        seen.add(record.id)
    return found


def extract(name: str, folder: str, out: str) -> None:
    """Write the texts and labels of a task."""
    write(name, _sets(TASKS[name], name, folder), folder, out)


def _sets(task: Task, name: str, folder: str) -> Dict[str, List[Record]]:
    sets: Dict[str, List[Record]] = {}
    for split, names in zip(("train", "valid", "valid1", "valid2", "valid3"), task.sources):
        found = records(task, folder, names)
        known = [record for record in found if record.label is not None]
        if split not in ("train", "valid"):
            if not known:
                continue  # without answers, or not there
            if split != "valid1" and len(found) == len(sets["valid1"]):
                continue  # all of the test set
        if not found:
            raise UsageError(f"{folder}: has none of {', '.join(names)}, the {split} set of {name}")
        if len(known) < len(found):
            first = next(record for record in found if record.label is None)
            raise UsageError(f"{first.id}: has no answer")
        sets[split] = found
    return sets


def write(name: str, sets: Dict[str, List[Record]], folder: str, out: str) -> None:
    """Write the records of each split of a task; *folder* is where they come from."""
    most = max(len(record.choices) for record in sets["train"])
    for split, found in sets.items():
        for record in found:
            if len(record.choices) > most:
                raise UsageError(
                    f"{record.id}: has {len(record.choices)} choices, the training set {most}"
                )
        columns: Dict[str, List[str]] = {
            "input0": [record.passage for record in found],
            "label": [str(record.label) for record in found],
            "ids": [record.id for record in found],
        }
        for number in range(most):
            columns[f"input{number + 1}"] = [
                record.choices[number] if number < len(record.choices) else "" for record in found
            ]
        for column, lines in columns.items():
            with write_text(f"{out}/{column}/{split}") as stream:
                stream.writelines(line + "\n" for line in lines)
        print(f"{folder}: {len(found)} questions for {split}", file=sys.stderr)
    files = {"choices": most, "splits": " ".join(sets), "task": f"{name} {most}"}
    files["examples"] = len(sets["train"])
    for file, content in files.items():
        with write_text(f"{out}/{file}") as stream:
            stream.write(f"{content}\n")


def cut(texts: str, pieces: str, out: str, longest: int) -> None:
    """Shorten the choices in symbols."""
    (splits,) = read_lines(f"{texts}/splits")
    (most,) = read_lines(f"{texts}/choices")
    for split in splits.split():
        ids = list(read_lines(f"{texts}/ids/{split}"))
        for number in range(int(most) + 1):
            column = f"input{number}/{split}"
            with write_text(f"{out}/{column}") as stream:
                lines = zip(ids, read_lines(f"{texts}/{column}"), read_lines(f"{pieces}/{column}"))
                for key, text, line in lines:
                    if text.strip() and not line.strip():
                        raise UsageError(f"{key}: {text!r} has no symbol of the model")
                    symbols = line.split()
                    kept = symbols[-longest:] if number else symbols
                    stream.write(" ".join(kept) + "\n")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    actions = parser.add_subparsers(dest="action", metavar="{extract,cut}")
    actions.required = True
    reading = actions.add_parser("extract", help="read the published files")
    reading.add_argument("task", choices=sorted(TASKS))
    reading.add_argument("source")
    reading.add_argument("out")
    shorten = actions.add_parser("cut", help="shorten the choices")
    for name in ("text", "pieces", "out"):
        shorten.add_argument(name)
    shorten.add_argument("--longest", type=int, default=128)
    args = parser.parse_args(argv)
    if args.action == "extract":
        extract(args.task, args.source, args.out)
    else:
        cut(args.text, args.pieces, args.out, args.longest)


if __name__ == "__main__":
    main()
