"""The published files of multiple choice, as records: RACE, C3, CHID, COPA and QNLI."""

import os
import re
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_of, read_json_lines, read_lines
from fairseq_posenc.basics.records import field, some_text, texts

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


def filled(question: str, choice: str) -> str:
    """The question, if there is one, with a choice in its blank, or behind it if it has none.

    >>> filled("The cat is _ .", "old")
    'The cat is old .'
    >>> filled("Why?", "It is.")
    'Why? It is.'
    """
    if BLANK in question:
        return re.sub(r"_+", lambda _: choice, question, count=1)
    return f"{question} {choice}".lstrip()


def _record(key: str, passage: Any, question: Any, choices: Any, label: Any) -> Record:
    """A record of fields that are as the file has them."""
    found = {"passage": passage, "question": question, "choices": choices, "answer": label}
    if label is not None:
        field(found, "answer", int, key)
    if not all(choice.strip() for choice in texts(found, "choices", key)):
        raise UsageError(f"{key}: a choice is empty")
    whole = [some_text(found, "passage", key), field(found, "question", str, key), *choices]
    lines = [" ".join(text.split()) for text in whole]
    return Record(key, lines[0], [filled(lines[1], choice) for choice in lines[2:]], label)


def _place(answer: Any, choices: Any) -> int:
    """The number of the answer among the choices; -1 if it is none of them."""
    return choices.index(answer) if isinstance(choices, list) and answer in choices else -1


LETTERS = list("ABCDEFGHIJ")  # that name the choices of RACE


def read_race(folder: str) -> Iterator[Record]:
    """The records of a folder with middle/*.txt and high/*.txt, or with such files."""
    paths = sorted(
        os.path.join(part, name)
        for part, _, names in os.walk(folder)
        for name in names
        if name.endswith(".txt")
    )
    for path in paths:
        entry = json_of("\n".join(read_lines(path)), path)
        questions, options = (field(entry, name, list, path) for name in ("questions", "options"))
        article = some_text(entry, "article", path)
        labels: List[Optional[int]] = [None] * len(questions)
        if entry.get("answers") is not None:
            labels = [_place(answer, LETTERS) for answer in field(entry, "answers", list, path)]
        if not len(questions) == len(options) == len(labels):
            raise UsageError(f"{path}: has different numbers of questions, options and answers")
        for number, (question, choices, label) in enumerate(zip(questions, options, labels)):
            name = os.path.relpath(path, folder)
            yield _record(f"{folder}: {name}: question {number}", article, question, choices, label)


def read_c3(path: str) -> Iterator[Record]:
    """The records of a file of C3."""
    entries = json_of("\n".join(read_lines(path)), path)
    if not isinstance(entries, list):
        raise UsageError(f"{path}: has to be a list of records")
    for number, entry in enumerate(entries):
        where = f"{path}: record {number}"
        parts = dict(zip(("sentences", "questions"), entry)) if isinstance(entry, list) else {}
        passage = " ".join(texts(parts, "sentences", where))
        for at, asked in enumerate(field(parts, "questions", list, where)):
            key = f"{where}: question {at}"
            question, choices = field(asked, "question", str, key), texts(asked, "choice", key)
            label = _place(asked["answer"], choices) if "answer" in asked else None
            yield _record(key, passage, question, choices, label)


def read_chid(path: str) -> Iterator[Record]:
    """The records of a file of ChID: its own format, or CLUE's with the answers beside it."""
    beside = re.sub(r"(\.json|\.txt)?$", r"_answer\1", path, count=1)
    named = {}
    if os.path.isfile(beside):
        named = json_of("\n".join(read_lines(beside)), beside)
        if not isinstance(named, dict):
            raise UsageError(f"{beside}: has to be an object with the answer for each blank")
    for number, entry in read_json_lines(path):
        where = f"{path}: line {number}"
        candidates, right = field(entry, "candidates", list, where), None
        if entry.get("groundTruth") is not None:
            right = texts(entry, "groundTruth", where)
        one = isinstance(entry.get("content"), str)
        contents = [entry["content"]] if one else texts(entry, "content", where)
        blanks = sum(len(_IDIOM.findall(content)) for content in contents)
        if not blanks:
            raise UsageError(f"{where}: has no blank (#idiom#)")
        shared = all(isinstance(candidate, str) for candidate in candidates)
        each = ([] if shared else [candidates]) + ([] if right is None else [right])
        if any(len(part) != blanks for part in each):
            raise UsageError(
                f"{where}: has {blanks} blanks, but not as many answers or lists of candidates"
            )
        blank = 0
        for content in contents:
            for found in _IDIOM.finditer(content):
                own = candidates if shared else candidates[blank]
                label = named.get(found.group())
                if right is not None:
                    label = _place(right[blank], own)
                elif named and label is None:
                    raise UsageError(f"{beside}: has no answer for {found.group()} of {where}")
                question, passage = _around(content, found.start(), found.end())
                key = f"{where}: blank {blank}"
                yield _record(key, passage, question, own, label)
                blank += 1


def _around(content: str, start: int, end: int) -> Tuple[str, str]:
    """The sentence of a blank, with others left out, and the passage near it."""
    before = _IDIOM.sub("", content[max(start - REACH, 0) : start])
    after = _IDIOM.sub("", content[end : end + REACH])
    first = max(before.rfind(sign) for sign in _SENTENCE_END) + 1
    ends = [after.find(sign) for sign in _SENTENCE_END if sign in after]
    last = min(ends) + 1 if ends else len(after)
    question = before[first:].replace(BLANK, " ") + BLANK + after[:last].replace(BLANK, " ")
    return question, before + BLANK + after


#: COPA's questions (Roemmele et al. 2011), by the word in its files.
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def read_copa(path: str) -> Iterator[Record]:
    """The records of a file of SuperGLUE's COPA."""
    for number, entry in read_json_lines(path):
        where = f"{path}: line {number}"
        premise, asked, *choices = (
            some_text(entry, name, where) for name in ("premise", "question", "choice1", "choice2")
        )
        if asked not in ASKED:
            raise UsageError(f"{where}: question is {asked!r}; expected {' or '.join(ASKED)}")
        yield _record(where, premise, ASKED[asked], choices, entry.get("label"))


#: GLUE's labels of QNLI: does the sentence answer the question?
ANSWERS = {"entailment": True, "not_entailment": False}
SENTENCES = 4  # the most a question of QNLI has: the answer and the first of the others


def read_qnli(path: str) -> Iterator[Record]:
    """The questions of GLUE's QNLI, each with its sentences (RoBERTa, section 5.1).

    Questions with no answer, with several, or with an answer alone are not ranked: they are left
    out and counted, as are sentences beyond SENTENCES.
    """
    lines = enumerate(read_lines(path), 1)
    header = next(lines, (1, ""))[1].split("\t")
    columns = ("question", "sentence", "label")
    if not set(columns) <= set(header):
        raise UsageError(
            f"{path}: line 1: expected the columns {', '.join(columns)}, as in GLUE's QNLI"
        )
    asked: Dict[str, List[Tuple[int, str, bool]]] = {}
    for number, line in lines:
        fields = dict(zip(header, line.split("\t")))
        try:
            question, sentence, label = (fields[column] for column in columns)
            asked.setdefault(question, []).append((number, sentence, ANSWERS[label]))
        except KeyError as error:
            raise UsageError(
                f"{path}: line {number}: has no {error}; expected {' or '.join(ANSWERS)}"
            ) from error
        if not question.strip() or not sentence.strip():
            raise UsageError(f"{path}: line {number}: the question or the sentence is empty")
    left_out = beyond = 0
    for question, rows in asked.items():
        wrong = [row for row in rows if not row[2]]
        if len(rows) - len(wrong) != 1 or not wrong:
            left_out += 1
            continue
        beyond += len(wrong[SENTENCES - 1 :])
        kept = [row for row in rows if row[2] or row in wrong[: SENTENCES - 1]]
        right = next(place for place, row in enumerate(kept) if row[2])
        yield _record(
            f"{path}: line {rows[0][0]}", question, "", [sentence for _, sentence, _ in kept], right
        )
    if left_out == len(asked):
        raise UsageError(
            f"{path}: no question has one sentence that answers it and one that does not"
        )
    if left_out or beyond:
        print(
            f"{path}: left out {left_out} questions without a choice, and {beyond} sentences beyond"
            f" {SENTENCES} of a question",
            file=sys.stderr,
        )
