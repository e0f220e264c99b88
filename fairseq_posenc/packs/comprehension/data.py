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

import functools
import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, Sequence, TypeVar

from fairseq.data import Dictionary, indexed_dataset
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_value, read_json_object, read_lines
from fairseq_posenc.packs.comprehension.alignment import Span, covering, token_offsets
from fairseq_posenc.packs.comprehension.questions import Question, Reading, field
from fairseq_posenc.packs.comprehension.scores import RULES

if TYPE_CHECKING:  # a training prepares no text
    from fairseq_posenc.serving.preparation import Preparation

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
    reading: Reading, preparation: "Preparation", dictionary: Dictionary, where: str
) -> Split:
    """Split questions and passages into tokens, and find the tokens of the answers.

    Raises:
        UsageError: a question or a passage has no token, or no token stands for an answer.
    """

    @functools.lru_cache(maxsize=None)
    def surface(token: str) -> str:  # without marks of where words begin
        return "" if token == dictionary.unk_word else preparation.words([token])

    def tokens_of(text: str, name: str) -> List[str]:
        tokens = preparation.source(text)
        if not tokens:
            raise UsageError(f"{where}: {name} has no token")
        return tokens

    questions = [tokens_of(each.text, f"question {each.id}") for each in reading.questions]
    tokens = [
        tokens_of(text, f"passage {number} (counted from 0)")
        for number, text in enumerate(reading.passages)
    ]
    passages = [
        Passage(text, token_offsets(text, list(map(surface, pieces))))
        for text, pieces in zip(reading.passages, tokens)
    ]
    records = [_record(question, passages, where) for question in reading.questions]
    numbers = [
        [dictionary.encode_line(text, list, False, append_eos=False) for text in side]
        for side in (questions, tokens)
    ]
    return Split(records, passages, *numbers)


def write_split(
    folder: str, name: str, reading: Reading, preparation: "Preparation", dictionary: Dictionary
) -> int:
    """Prepare a file of questions; return how many answers begin or end within a token.

    Raises:
        UsageError: as :func:`split_texts`, or the dictionary knows less than half of the tokens.
    """
    split = split_texts(reading, preparation, dictionary, name)
    _check_known(split, dictionary, name)
    base = os.path.join(folder, name)
    _write_tokens(base + ".passage", split.passage_tokens, len(dictionary))
    _write_tokens(base + ".question", split.question_tokens, len(dictionary))
    _write_lines(base + ".questions.jsonl", split.questions)
    _write_lines(base + ".passages.jsonl", split.passages)
    return sum(_inexact(record, split.passages[record.passage]) for record in split.questions)


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


def _write_tokens(path: str, texts: Sequence[Tensor], symbols: int) -> None:
    builder = indexed_dataset.make_builder(path + ".bin", "mmap", symbols)
    for numbers in texts:
        builder.add_item(numbers)
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
        FileNotFoundError: there is no such split (fairseq expects this exception).
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


def _check_known(split: Split, dictionary: Dictionary, where: str) -> None:
    """Refuse texts with mostly unknown tokens: from other subwords, or in another language."""
    unknown = Counter(
        passage.text[slice(*passage.offsets[place])]
        for passage, numbers in zip(split.passages, split.passage_tokens)
        for place in numbers.eq(dictionary.unk()).nonzero()[:, 0].tolist()
    )
    share = sum(unknown.values()) / max(1, sum(map(len, split.passage_tokens)))
    if share > 0.5:
        examples = ", ".join(text for text, _ in unknown.most_common(3))
        raise UsageError(
            f"{where}: {share:.0%} of the tokens are not in the dictionary ({examples}); split the "
            "text as in pre-training (--tokenizer, --subwords, --lowercase)"
        )
