"""Questions and passages as numbers, beside the texts that answers are taken from.

::

    DATA/
        dict.txt                    the dictionary of the model
        reading.json                the rules of the scores; whether questions may have no answer
        train.question.{bin,idx}    tokens of the questions, without special symbols
        train.passage.{bin,idx}     tokens of the passages
        train.questions.jsonl       id, passage, right answers, first and last token of the answer
        train.passages.jsonl        text, and the characters of every token
"""

import json
import os
from collections import Counter
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import torch
from fairseq.data import Dictionary, indexed_dataset
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_value, read_json_object, read_lines
from fairseq_posenc.packs.comprehension.alignment import Span, covering, token_offsets
from fairseq_posenc.packs.comprehension.questions import Question, Reading, field
from fairseq_posenc.packs.comprehension.scores import RULES

SETTINGS = "reading.json"
_PREPARE = "give a folder that `fairseq-posenc reading prepare` wrote"

Entry = TypeVar("Entry")


class Record(NamedTuple):
    """A question as it is prepared."""

    id: str  # the name in predictions
    passage: int  # the number of its passage
    answers: Sequence[str]  # texts of the right answers
    # the first token of the answer in the passage; -1 if there is none, or if its place is not
    # known
    start: int
    end: int  # the last token


class Passage(NamedTuple):
    """A passage as it is prepared."""

    text: str  # as it was published
    offsets: List[Span]  # the characters of every token


class Split(NamedTuple):
    """A prepared file of questions."""

    questions: List[Record]  # the records of the questions
    passages: List[Passage]  # the texts of the passages
    question_tokens: Sequence[Tensor]  # numbers (T,) of a question's tokens, by its number
    passage_tokens: Sequence[Tensor]  # numbers (T,) of a passage's tokens, by its number


class Settings(NamedTuple):
    """What holds for all files of a data folder."""

    rules: str  # an entry of :data:`.scores.RULES`
    unanswerable: bool  # whether questions may have no answer


def split_texts(
    reading: Reading,
    tokens_of: Callable[[str], List[str]],
    surface_of: Callable[[str], str],
    where: str,
) -> Tuple[List[Record], List[Passage], List[List[str]], List[List[str]]]:
    """Split questions and passages into tokens, and find the tokens of the answers.

    Args:
        tokens_of: splits a text into tokens.
        surface_of: the text of a token, without marks.

    Returns:
        records, passages, and the tokens of the questions and of the passages.

    Raises:
        UsageError: a question or a passage has no token, or no token stands for an answer.
    """
    texts = [question.text for question in reading.questions]
    tokens = [[tokens_of(text) for text in side] for side in (texts, reading.passages)]
    names = [f"question {question.id}" for question in reading.questions]
    names += [f"passage {number} (counted from 0)" for number in range(len(reading.passages))]
    for name, pieces in zip(names, (*tokens[0], *tokens[1])):
        if not pieces:
            raise UsageError(f"{where}: {name} has no token")
    passages = [
        Passage(text, token_offsets(text, list(map(surface_of, pieces))))
        for text, pieces in zip(reading.passages, tokens[1])
    ]
    records = [_record(question, passages, where) for question in reading.questions]
    return records, passages, tokens[0], tokens[1]


def write_split(
    folder: str,
    split: str,
    reading: Reading,
    tokens_of: Callable[[str], List[str]],
    surface_of: Callable[[str], str],
    dictionary: Dictionary,
) -> int:
    """Prepare a file of questions.

    Args:
        folder: to write to, which exists.
        tokens_of: as for :func:`split_texts`, and so is *surface_of*.

    Returns:
        the number of answers that begin or end within a token.

    Raises:
        UsageError: as :func:`split_texts`, or the dictionary knows less than half of the tokens.
    """
    base = os.path.join(folder, split)
    records, passages, questions, tokens = split_texts(reading, tokens_of, surface_of, split)
    _check_known(tokens, dictionary, split)
    _write_tokens(base + ".passage", tokens, dictionary)
    _write_tokens(base + ".question", questions, dictionary)
    _write_lines(base + ".questions.jsonl", records)
    _write_lines(base + ".passages.jsonl", passages)
    return sum(_inexact(record, passages[record.passage]) for record in records)


def _inexact(record: Record, passage: Passage) -> bool:
    """Whether the answer has a place, and begins or ends there within a token."""
    if record.start < 0:
        return False
    start, end = passage.offsets[record.start][0], passage.offsets[record.end][1]
    return passage.text[start:end] != record.answers[0].strip()


def _record(question: Question, passages: Sequence[Passage], split: str) -> Record:
    tokens: Optional[Span] = (-1, -1)
    if question.start >= 0:
        end = question.start + len(question.answers[0].strip())
        tokens = covering(passages[question.passage].offsets, question.start, end)
    if tokens is None:
        raise UsageError(
            f"{split}: question {question.id}: no token stands for the answer "
            f"{question.answers[0]!r}; correct it, or leave the question out"
        )
    return Record(question.id, question.passage, question.answers, *tokens)


def _write_tokens(path: str, texts: Sequence[Sequence[str]], dictionary: Dictionary) -> None:
    builder = indexed_dataset.make_builder(path + ".bin", "mmap", len(dictionary))
    for tokens in texts:
        numbers = [dictionary.index(token) for token in tokens]
        builder.add_item(torch.tensor(numbers, dtype=torch.int32))
    builder.finalize(path + ".idx")


def _write_lines(path: str, entries: Sequence[Any]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        for entry in entries:
            stream.write(json.dumps(entry._asdict(), ensure_ascii=False) + "\n")


def write_settings(folder: str, settings: Settings) -> None:
    """Write what holds for all files of a data folder."""
    _write_lines(os.path.join(folder, SETTINGS), [settings])


def read_settings(folder: str) -> Settings:
    """What holds for all files of a data folder.

    Raises:
        UsageError: it is no such folder.
    """
    path = os.path.join(folder, SETTINGS)
    content = read_json_object(path, path, _PREPARE)
    rules = str(content.get("rules"))
    if rules not in RULES:
        raise UsageError(f"{path}: rules {rules!r}: expected {' or '.join(RULES)}")
    return Settings(rules, field(content, "unanswerable", bool, path))


def read_split(folder: str, split: str) -> Split:
    """Read a prepared file of questions.

    Raises:
        FileNotFoundError: there is no such split, as fairseq expects it.
        UsageError: its files do not belong together.
    """
    base = os.path.join(folder, split)
    parts = [base + ".question", base + ".passage"]
    if not all(indexed_dataset.MMapIndexedDataset.exists(part) for part in parts):
        raise FileNotFoundError(f"Dataset not found: {split} ({folder})")
    tokens = [indexed_dataset.make_dataset(part, "mmap") for part in parts]
    questions = _read_lines(parts[0] + "s.jsonl", lambda entry: Record(**entry))
    passages = _read_lines(
        parts[1] + "s.jsonl",
        lambda entry: Passage(entry["text"], [(start, end) for start, end in entry["offsets"]]),
    )
    lengths = (len(questions), len(passages))
    for part, lines, texts in zip(parts, lengths, map(len, tokens)):
        if lines != texts:
            raise UsageError(f"{part}s.jsonl: has {lines} lines instead of {texts}; {_PREPARE}")
    for number, (numbers, passage) in enumerate(zip(tokens[1], passages), 1):
        if len(numbers) != len(passage.offsets):
            raise UsageError(f"{parts[1]}s.jsonl: line {number}: is of other data; {_PREPARE}")
    return Split(questions, passages, *tokens)


def _read_lines(path: str, entry_of: Callable[[Any], Entry]) -> List[Entry]:
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            entries.append(entry_of(json_value(line)))
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise UsageError(f"{path}: line {number}: {error}; {_PREPARE}") from error
    return entries


def _check_known(texts: Sequence[Sequence[str]], dictionary: Dictionary, split: str) -> None:
    """Refuse texts most of whose tokens are unknown: subwords of another kind, or language."""
    counts = Counter(token for tokens in texts for token in tokens)
    unknown = Counter({t: n for t, n in counts.items() if dictionary.index(t) == dictionary.unk()})
    share = sum(unknown.values()) / max(1, sum(counts.values()))
    if share > 0.5:
        examples = ", ".join(token for token, _ in unknown.most_common(3))
        raise UsageError(
            f"{split}: {share:.0%} of the tokens are not in the dictionary ({examples}); split the "
            "text as that of the pre-training (--tokenizer, --subwords, --lowercase)"
        )
