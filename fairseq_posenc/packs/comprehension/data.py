"""Data folders of questions and passages: token ids, and the texts that answers are taken from.

::

    DATA/
        dict.txt                    the dictionary of the model
        reading.json                the scoring rules, and whether questions may have no answer
        train.question.{bin,idx}    tokens of the questions, without special symbols
        train.passage.{bin,idx}     tokens of the passages
        train.questions.jsonl       id, passage index, answers, first and last token of the answer
        train.passages.jsonl        text, and the characters that each token stands for
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

if TYPE_CHECKING:  # training prepares no text
    from fairseq_posenc.serving.preparation import Preparation

SETTINGS = "reading.json"
_PREPARE = "give a folder that `fairseq-posenc reading prepare` wrote"

Entry = TypeVar("Entry")


class Record(NamedTuple):
    """A question in the prepared data."""

    id: str  # its key in files of predictions
    passage: int  # index of its passage
    answers: Sequence[str]  # texts of the correct answers
    # index of the passage token with which the first answer begins; -1 if there is no answer, or if
    # the position of the answer is unknown
    start: int
    end: int  # index of the last token of this answer, or -1


class Passage(NamedTuple):
    """A passage in the prepared data."""

    text: str  # the published text
    offsets: List[Span]  # start and end of the characters of each token


class Split(NamedTuple):
    """A split of the prepared data."""

    questions: List[Record]  # all questions
    passages: List[Passage]  # all passages
    question_tokens: Sequence[Tensor]  # token ids (T,) of each question
    passage_tokens: Sequence[Tensor]  # token ids (T,) of each passage


class Settings(NamedTuple):
    """Settings of a data folder, for all splits."""

    rules: str  # a key of :data:`.scores.RULES`
    unanswerable: bool  # whether questions may have no answer


def split_texts(
    reading: Reading, preparation: "Preparation", dictionary: Dictionary, where: str
) -> Split:
    """Split questions and passages into tokens, and find the tokens of the answers.

    Raises:
        UsageError: a question or a passage has no token, or an answer is covered by no token.
    """

    @functools.lru_cache(maxsize=None)
    def surface(token: str) -> str:  # without its word-boundary mark
        return "" if token == dictionary.unk_word else preparation.words([token])

    def tokens_of(text: str, name: str) -> List[str]:
        tokens = preparation.source(text)
        if not tokens:
            raise UsageError(f"{where}: {name} has no token; give it a text")
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
    """Write the files of a split; return how many answers begin or end within a token.

    Raises:
        UsageError: as :func:`split_texts`, or most tokens are not in the dictionary.
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
    """Whether the answer has a position, and begins or ends within a token."""
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
    """Write the settings of a data folder."""
    _write_lines(os.path.join(folder, SETTINGS), [settings])


def read_settings(folder: str) -> Settings:
    """Read the settings of a data folder.

    Raises:
        UsageError: *folder* is not a prepared data folder.
    """
    path = os.path.join(folder, SETTINGS)
    content = read_json_object(path, path, _PREPARE)
    rules = str(content.get("rules"))
    if rules not in RULES:
        raise UsageError(f"{path}: rules {rules!r}: expected {' or '.join(RULES)}")
    return Settings(rules, field(content, "unanswerable", bool, path))


def read_split(folder: str, split: str) -> Split:
    """Read a split of the prepared data.

    Raises:
        FileNotFoundError: the folder lacks the split (fairseq expects this exception).
        UsageError: the files of the split do not match each other.
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
            raise UsageError(
                f"{parts[1]}s.jsonl: line {number}: must have as many offsets as tokens; {_PREPARE}"
            )
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
    """Refuse texts of mostly unknown tokens, a sign of wrong subwords or of another language."""
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
