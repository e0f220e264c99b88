"""Multiple choice from the published files: RACE, C3 and CHID, in the layout of sentence_ranking.

    python choices.py extract TASK SOURCE OUT
    python choices.py cut TEXT PIECES OUT [--longest 128]

`extract` reads TASK (race, c3 or chid) from the folder SOURCE and writes OUT/input0/SPLIT with the
passages, OUT/input1/SPLIT to OUT/inputN/SPLIT with the question and one choice each, where N is
the largest number of choices in the training set, and OUT/label/SPLIT with the number of the right
one, from 0; a choice that a question does not have is an empty line. OUT/choices then has N,
OUT/ids/SPLIT the ids, and OUT/splits the splits: train, valid, and valid1 if the test set has
answers.

`cut` shortens the choices in symbols to the last LONGEST ones, so that the answer stays, and
refuses those that have a text but no symbol. TEXT is a folder that `extract` wrote, PIECES that of
the same files in symbols.
"""

import argparse
import json
import os
import re
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from text import atomic_writer, fail, read_lines

BLANK = "_"
REACH = 200  # characters of a passage on either side of CHID's blank
_IDIOM = re.compile(r"#idiom\d*#")
_SENTENCE_END = "。！？!?"


class Record(NamedTuple):
    """A question with its choices.

    Args:
        id: the file and its place there, for messages and predictions.
        passage: the text that it is about.
        choices: the question with each choice.
        label: the number of the right one, from 0; None if it is not known.
    """

    id: str
    passage: str
    choices: List[str]
    label: Optional[int]


class Task(NamedTuple):
    """A data set.

    Args:
        read: yields the records of a file or a folder.
        sources: names of the training, validation and test set, each a list of files or folders.
        fewest: choices of a question.
        most: choices of a question.
    """

    read: Callable[[str], Iterator[Record]]
    sources: Tuple[Sequence[str], Sequence[str], Sequence[str]]
    fewest: int
    most: int


def filled(question: str, choice: str) -> str:
    """The question with a choice in its blank, or behind it if it has none.

    >>> filled("The cat is _ .", "old")
    'The cat is old .'
    >>> filled("Why?", "It is.")
    'Why? It is.'
    """
    if BLANK in question:
        return re.sub(r"_+", lambda _: choice, question, count=1)
    return f"{question} {choice}"


def _record(key: str, passage: str, question: str, choices: Any, label: Optional[int]) -> Record:
    texts = [passage, question, *choices]
    if not all(isinstance(text, str) for text in texts):
        fail(f"{key}: passage, question and choices have to be texts")
    if not all(text.strip() for text in [passage, *choices]):
        fail(f"{key}: the passage or a choice is empty")
    lines = [" ".join(text.split()) for text in texts]
    return Record(key, lines[0], [filled(lines[1], choice) for choice in lines[2:]], label)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"{where}: is not JSON ({error})")


def read_race(folder: str) -> Iterator[Record]:
    """The records of a folder with middle/*.txt and high/*.txt, or with such files."""
    paths = sorted(
        os.path.join(part, name)
        for part, _, names in os.walk(folder)
        for name in names
        if name.endswith(".txt")
    )
    for path in paths:
        entry = _json("\n".join(read_lines(path)), path)
        try:
            parts = (entry["questions"], entry["options"], entry.get("answers"))
            article = entry["article"]
        except (AttributeError, KeyError, TypeError) as error:
            fail(f"{path}: has no {error}; expected article, questions, options and answers")
        questions, options, answers = parts
        lengths = {len(part) for part in (questions, options, answers or questions)}
        if len(lengths) > 1:
            fail(f"{path}: has different numbers of questions, options and answers")
        for number, (question, choices) in enumerate(zip(questions, options)):
            label = None if answers is None else "ABCDEFGHIJ".find(str(answers[number]))
            name = os.path.relpath(path, folder)
            yield _record(f"{folder}: {name}: question {number}", article, question, choices, label)


def read_c3(path: str) -> Iterator[Record]:
    """The records of a file of C3."""
    for number, entry in enumerate(_json("\n".join(read_lines(path)), path)):
        where = f"{path}: record {number}"
        try:
            sentences, questions, *_ = entry
            for at, asked in enumerate(questions):
                key, choices = f"{where}: question {at}", asked["choice"]
                label = None
                if "answer" in asked:
                    label = choices.index(asked["answer"]) if asked["answer"] in choices else -1
                yield _record(key, " ".join(sentences), asked["question"], choices, label)
        except (KeyError, TypeError, ValueError) as error:
            fail(f"{where}: {error}; expected [sentences, questions with choice and answer, id]")


def read_chid(path: str) -> Iterator[Record]:
    """The records of a file of ChID: its own format, or CLUE's with the answers beside it."""
    beside = re.sub(r"(\.json|\.txt)?$", r"_answer\1", path, count=1)
    named = {}
    if os.path.isfile(beside):
        named = _json("\n".join(read_lines(beside)), beside)
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        entry = _json(line, where)
        try:
            contents, candidates = entry["content"], entry["candidates"]
            right = entry.get("groundTruth")
        except (AttributeError, KeyError, TypeError) as error:
            fail(f"{where}: has no {error}; expected content and candidates")
        blank = 0
        for content in [contents] if isinstance(contents, str) else contents:
            for found in _IDIOM.finditer(content):
                own = candidates if isinstance(candidates[0], str) else candidates[blank]
                label = named.get(found.group())
                if right is not None:
                    label = own.index(right[blank]) if right[blank] in own else -1
                elif named and label is None:
                    fail(f"{beside}: has no answer for {found.group()} of {where}")
                question, passage = _around(content, found.start(), found.end())
                key = f"{where}: blank {blank}"
                yield _record(key, passage, question, own, label)
                blank += 1
        if not blank:
            fail(f"{where}: has no blank (#idiom#)")


def _around(content: str, start: int, end: int) -> Tuple[str, str]:
    """The sentence of a blank, with others left out, and the passage near it."""
    before = _IDIOM.sub("", content[max(start - REACH, 0) : start])
    after = _IDIOM.sub("", content[end : end + REACH])
    first = max(before.rfind(sign) for sign in _SENTENCE_END) + 1
    ends = [after.find(sign) for sign in _SENTENCE_END if sign in after]
    last = min(ends) + 1 if ends else len(after)
    question = before[first:].replace(BLANK, " ") + BLANK + after[:last].replace(BLANK, " ")
    return question, before + BLANK + after


TASKS: Dict[str, Task] = {
    "race": Task(read_race, (["train"], ["dev"], ["test"]), 4, 4),
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
            fail(f"{record.id}: has {count} choices, and questions of this task have {expected}")
        if record.label is not None and not 0 <= record.label < count:
            fail(f"{record.id}: its answer is none of the {count} choices")
        if record.id in seen:
            fail(f"{record.id}: occurs twice")
        seen.add(record.id)
    return found


def extract(name: str, folder: str, out: str) -> None:
    """Write the texts and labels of a task."""
    task = TASKS[name]
    sets: Dict[str, List[Record]] = {}
    for split, names in zip(("train", "valid", "valid1"), task.sources):
        found = records(task, folder, names)
        known = [record for record in found if record.label is not None]
        if split == "valid1" and not known:
            continue  # without answers, or not there
        if not found:
            fail(f"{folder}: has none of {', '.join(names)}, the {split} set of {name}")
        if len(known) < len(found):
            first = next(record for record in found if record.label is None)
            fail(f"{first.id}: has no answer")
        sets[split] = found
    most = max(len(record.choices) for record in sets["train"])
    for split, found in sets.items():
        for record in found:
            if len(record.choices) > most:
                fail(f"{record.id}: has {len(record.choices)} choices, the training set {most}")
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
            with atomic_writer(f"{out}/{column}/{split}") as stream:
                stream.writelines(line + "\n" for line in lines)
        print(f"{folder}: {len(found)} questions for {split}", file=sys.stderr)
    for file, content in (("choices", str(most)), ("splits", " ".join(sets))):
        with atomic_writer(f"{out}/{file}") as stream:
            stream.write(content + "\n")


def cut(texts: str, pieces: str, out: str, longest: int) -> None:
    """Shorten the choices in symbols."""
    (splits,) = read_lines(f"{texts}/splits")
    (most,) = read_lines(f"{texts}/choices")
    for split in splits.split():
        ids = list(read_lines(f"{texts}/ids/{split}"))
        for number in range(int(most) + 1):
            column = f"input{number}/{split}"
            with atomic_writer(f"{out}/{column}") as stream:
                lines = zip(ids, read_lines(f"{texts}/{column}"), read_lines(f"{pieces}/{column}"))
                for key, text, line in lines:
                    if text.strip() and not line.strip():
                        fail(f"{key}: {text!r} has no symbol of the model")
                    symbols = line.split()
                    kept = symbols[-longest:] if number else symbols
                    stream.write(" ".join(kept) + "\n")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
