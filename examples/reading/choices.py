"""Turn published multiple-choice files into texts for fairseq's sentence_ranking.

    python choices.py TASK SOURCE OUT

TASK is race, c3, chid, copa, qnli or cail, SOURCE the folder with its files. OUT/input0/SPLIT gets
the passages, OUT/input1/SPLIT and so on the question with one choice each (an empty line if a
question has fewer choices), and OUT/label/SPLIT the index of the correct choice, from 0. The splits
are train, valid, and, if the test set has answers, valid1; for RACE also valid2 and valid3, its
middle and high school parts.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

BLANK = "_"
REACH = 200  # characters of a passage on either side of ChID's blank
IDIOM = re.compile(r"#idiom\d*#")
SENTENCE_END = "。！？!?"
#: COPA's questions (Roemmele et al. 2011), keyed by the word in its files.
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
#: GLUE's labels of QNLI: does the sentence answer the question?
ANSWERS = {"entailment": True, "not_entailment": False}
SENTENCES = 4  # maximum per question of QNLI: its answer, and the first sentences without it
CAIL = {"train": 6, "valid": 2, "valid1": 2}  # shares of the splits (RoFormer, section 4.5.3)


class Record(NamedTuple):
    """A passage, the question with each choice, and the index of the correct choice, if known."""

    passage: str
    choices: List[str]
    label: Optional[int]


def record(passage: str, question: str, choices: Sequence[str], label: Optional[int]) -> Record:
    """A record with each text on one line; a choice fills the question's blank or follows it."""
    passage, question, *texts = (" ".join(text.split()) for text in (passage, question, *choices))
    if not all([passage, *texts]):
        raise ValueError("a text is empty")
    if label is not None and not 0 <= label < len(texts):
        raise ValueError(f"the answer {label} is none of {len(texts)} choices")
    if BLANK in question:
        before, after = re.split(f"{BLANK}+", question, maxsplit=1)
        return Record(passage, [before + text + after for text in texts], label)
    return Record(passage, [f"{question} {text}".lstrip() for text in texts], label)


def race(entry: Any, _: Any) -> Iterator[Record]:
    """The records of a passage of RACE."""
    questions, options = entry["questions"], entry["options"]
    labels: List[Optional[int]] = [None] * len(options)
    if "answers" in entry:
        labels = [list("ABCD").index(answer) for answer in entry["answers"]]
    if not len(questions) == len(options) == len(labels):
        raise ValueError("has different numbers of questions, options and answers")
    for question, choices, label in zip(questions, options, labels):
        yield record(entry["article"], question, choices, label)


def c3(entry: Any, _: Any) -> Iterator[Record]:
    """The records of a dialogue or text of C3."""
    for asked in entry[1]:
        choices, answer = asked["choice"], asked.get("answer")
        label = None if answer is None else choices.index(answer)
        yield record(" ".join(entry[0]), asked["question"], choices, label)


def chid(entry: Any, answers: Dict[str, int]) -> Iterator[Record]:
    """The records of a line of ChID; *answers* has the content of CLUE's separate file."""
    contents, candidates, right = entry["content"], entry["candidates"], entry.get("groundTruth")
    contents = [contents] if isinstance(contents, str) else contents
    blanks = [(text, found) for text in contents for found in IDIOM.finditer(text)]
    if not blanks or (right is not None and len(right) != len(blanks)):
        raise ValueError(f"has {len(blanks)} blanks (#idiom#), not one for each answer")
    for number, (text, found) in enumerate(blanks):
        choices = candidates if isinstance(candidates[0], str) else candidates[number]
        label = answers.get(found.group()) if right is None else choices.index(right[number])
        before = IDIOM.sub("", text[max(found.start() - REACH, 0) : found.start()])
        after = IDIOM.sub("", text[found.end() : found.end() + REACH])
        first = max(before.rfind(sign) for sign in SENTENCE_END) + 1
        last = min((after.find(sign) + 1 for sign in SENTENCE_END if sign in after), default=None)
        sides = [side.replace(BLANK, " ") for side in (before[first:], after[:last])]
        yield record(before + BLANK + after, BLANK.join(sides), choices, label)


def copa(entry: Any, _: Any) -> Iterator[Record]:
    """The record of a line of SuperGLUE's COPA."""
    choices = [entry["choice1"], entry["choice2"]]
    yield record(entry["premise"], ASKED[entry["question"]], choices, entry.get("label"))


def cail(entry: Any, _: Any) -> Iterator[Record]:
    """The record of a line of CAIL2019-SCM: which of two cases is more similar to the first?"""
    yield record(entry["A"], "", [entry["B"], entry["C"]], ["B", "C"].index(entry["label"]))


def qnli(rows: Any, _: Any) -> Iterator[Record]:
    """The record of a question of QNLI, if exactly one of several sentences answers it."""
    right = [row for row in rows if ANSWERS[row["label"]]]
    wrong = [row for row in rows if not ANSWERS[row["label"]]]
    if len(right) == 1 and wrong:
        kept = [row for row in rows if row in right or row in wrong[: SENTENCES - 1]]
        sentences = [row["sentence"] for row in kept]
        yield record(rows[0]["question"], "", sentences, kept.index(right[0]))


def parsed(text: str, place: str) -> Any:
    """Parse a text as JSON; on a mistake, exit with a message that names *place*."""
    try:
        return json.loads(text)
    except ValueError as error:
        sys.exit(f"{place}: is no JSON ({error})")


def lines(path: Path) -> Iterator[Tuple[str, Any]]:
    """Yield the number and the JSON object of each line of a file."""
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if line.strip():
            yield f"line {number}", parsed(line, f"{path}: line {number}")


def array(path: Path) -> Iterator[Tuple[str, Any]]:
    """Yield the number and the object of each entry in a file with one JSON list."""
    for number, entry in enumerate(parsed(path.read_text("utf-8"), str(path))):
        yield f"record {number}", entry


def folder(path: Path) -> Iterator[Tuple[str, Any]]:
    """Yield the name and the JSON object of each file in a folder."""
    for file in sorted(path.rglob("*.txt")):
        yield str(file.relative_to(path)), parsed(file.read_text("utf-8"), str(file))


def questions(path: Path) -> Iterator[Tuple[str, Any]]:
    """Yield each question of a TSV file with all its rows."""
    header, *rows = (line.split("\t") for line in path.read_text("utf-8").split("\n") if line)
    asked: Dict[str, List[Dict[str, str]]] = {}
    for row in rows:
        cells = dict(zip(header, row))
        asked.setdefault(cells["question"], []).append(cells)
    for question, found in asked.items():
        yield repr(question), found


class Task(NamedTuple):
    """A task: functions that read entries, the files of the splits, the maximum of choices."""

    entries: Callable[[Path], Iterator[Tuple[str, Any]]]
    read: Callable[[Any, Any], Iterator[Record]]
    files: Sequence[str]
    most: int


TASKS = {
    "race": Task(folder, race, ["train", "dev", "test", "test/middle", "test/high"], 4),
    "copa": Task(lines, copa, ["train.jsonl", "val.jsonl", "test.jsonl"], 2),
    "qnli": Task(questions, qnli, ["train.tsv", "dev.tsv"], SENTENCES),
    "c3": Task(array, c3, [f"*{split}.json" for split in ("train", "dev", "test")], 4),
    "chid": Task(lines, chid, [f"{split}[._]*" for split in ("train", "dev", "test")], 10),
    "cail": Task(lines, cail, ["*.json"], 2),
}


def read(task: Task, source: Path, pattern: str) -> List[Record]:
    """The records of all files of a split."""
    found: List[Record] = []
    for path in sorted(source.glob(pattern)):
        if path.stem.endswith("_answer"):
            continue
        beside, left_out, place = path.with_name(f"{path.stem}_answer{path.suffix}"), 0, ""
        try:
            answers = json.loads(beside.read_text("utf-8")) if beside.is_file() else {}
            for place, entry in task.entries(path):  # noqa: B007
                records = list(task.read(entry, answers))
                left_out += not records
                for one in records:
                    if not 2 <= len(one.choices) <= task.most:
                        raise ValueError(f"has {len(one.choices)} choices, not 2 to {task.most}")
                found += records
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            sys.exit(f"{path}: {place}: {type(error).__name__}: {error}")
        if left_out:
            print(f"{path}: left out {left_out} unusable entries", file=sys.stderr)
    return found


def split_cail(found: Sequence[Record]) -> Dict[str, List[Record]]:
    """Split the records by a hash of their texts; repeated records are dropped."""
    texts = {"\n".join([one.passage, *one.choices]): one for one in found}
    ordered = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
    sets, start, shares = {}, 0, 0
    for name, share in CAIL.items():
        shares += share
        end = len(ordered) * shares // sum(CAIL.values())
        sets[name], start = [texts[text] for text in ordered[start:end]], end
    return sets


def main(name: str, source: str, out: str) -> None:
    """Read all files of a task, and write its texts and labels."""
    task = TASKS[name]
    splits = ("train", "valid", "valid1", "valid2", "valid3")
    sets = {split: read(task, Path(source), p) for split, p in zip(splits, task.files)}
    if name == "cail":
        sets = split_cail(sets["train"])
    most = max((len(one.choices) for one in sets["train"]), default=0)
    for split, found in sets.items():
        known = [one for one in found if one.label is not None]
        if split in ("train", "valid") and (not known or len(known) < len(found)):
            sys.exit(f"{source}: {split}: only {len(known)} of {len(found)} questions have answers")
        if not known or (split > "valid1" and len(known) == len(sets["valid1"])):
            continue  # a test set without answers, or a part that equals the whole test set
        if max(len(one.choices) for one in known) > most:
            sys.exit(f"{source}: a question for {split} has more choices than any for train")
        columns = {"input0": [one.passage for one in known]}
        columns["label"] = [str(one.label) for one in known]
        for number in range(most):
            columns[f"input{number + 1}"] = [
                one.choices[number] if number < len(one.choices) else "" for one in known
            ]
        for column, texts in columns.items():
            path = Path(out, column, split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes("".join(text + "\n" for text in texts).encode())
        print(f"{source}: {len(known)} questions for {split}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in TASKS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
