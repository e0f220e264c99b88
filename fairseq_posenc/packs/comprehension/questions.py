"""Reads questions on passages from the published JSON files of SQuAD and CMRC 2018.

SQuAD 1.1, Rajpurkar et al., arXiv 1606.05250; SQuAD 2.0, Rajpurkar et al., arXiv 1806.03822;
CMRC 2018, Cui et al., arXiv 1810.07366.
"""

import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object

Kind = TypeVar("Kind", str, int, bool, List[Any])
_KINDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list"}
_LONGEST = 60  # maximum number of characters of a value in a message


def field(record: Any, name: str, kind: Type[Kind], where: str) -> Kind:
    """The field *name* of a JSON object; its value must be of type *kind*: str, int, bool or list.

    Raises:
        UsageError: *record* is no object, or the field is missing or of another type.
    """
    if not isinstance(record, dict) or name not in record:
        raise UsageError(f"{where}: has no {name}; expected {_KINDS[kind]}")
    value: Kind = record[name]
    if type(value) is not kind:  # in Python, True is an int as well
        shown = json.dumps(value, ensure_ascii=False)
        shown = shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
        raise UsageError(f"{where}: {name} is {shown}; expected {_KINDS[kind]}")
    return value


def some_text(record: Any, name: str, where: str) -> str:
    """The value of a text field, which must not be blank; see :func:`field`."""
    text = field(record, name, str, where)
    if not text.strip():
        raise UsageError(f"{where}: its {name} is empty")
    return text


class Question(NamedTuple):
    """A question on a passage."""

    id: str  # its key in files of predictions
    text: str  # the question
    passage: int  # index of its passage in the file
    answers: Tuple[str, ...] = ()  # texts of the correct answers; empty if it has no answer
    # index of the passage character with which the first answer begins; -1 if there is no answer,
    # or if the passage has a different text at the answer_start of the file
    start: int = -1


class Reading(NamedTuple):
    """The content of a file of questions."""

    passages: List[str]  # texts of the passages
    questions: List[Question]  # the questions on all passages
    misplaced: List[str]  # ids of questions whose first answer is not at its answer_start

    @property
    def answers(self) -> Dict[str, Sequence[str]]:
        """The correct answers to each question, by id."""
        return {question.id: question.answers for question in self.questions}


def read_questions(path: str, answered: bool = True, misplaced: str = "refuse") -> Reading:
    """Read a file of SQuAD 1.1, SQuAD 2.0 or CMRC 2018.

    Args:
        answered: whether every question must have an answer or, as in SQuAD 2.0, be marked as
            impossible; if False, the answers in the file are ignored.
        misplaced: what to do if an answer is not at its ``answer_start``: ``refuse`` the file,
            ``leave out`` the question, or ``keep`` the question without a position of its answer.

    Raises:
        UsageError: the file has another format, a field is missing or of another type, an id occurs
            twice, an answer is missing, or *misplaced* is ``refuse`` and an answer is misplaced.
    """
    content = read_json_object(path, path, "give the file as it was published")
    reading = Reading([], [], [])
    seen: Dict[str, int] = {}
    for article in field(content, "data", list, path):
        for paragraph in field(article, "paragraphs", list, path):
            where = f"{path}: passage {len(reading.passages)}"
            reading.passages.append(some_text(paragraph, "context", where))
            for entry in field(paragraph, "qas", list, where):
                question = _question(entry, reading, path, answered, misplaced)
                if question is None:
                    continue
                if question.id in seen:
                    raise UsageError(
                        f"{path}: the id {question.id} occurs twice, in passages "
                        f"{seen[question.id]} and {question.passage} (counted from 0); predictions "
                        "are keyed by id, so give each question a different id"
                    )
                seen[question.id] = question.passage
                reading.questions.append(question)
    if not reading.questions:
        raise UsageError(f"{path}: has no question; give the file as it was published")
    return reading


def _question(
    entry: Any, reading: Reading, path: str, answered: bool, misplaced: str
) -> Optional[Question]:
    passage = len(reading.passages) - 1
    if isinstance(entry, dict) and type(entry.get("id")) is int:  # GermanQuAD's ids are numbers
        entry = {**entry, "id": str(entry["id"])}
    key = some_text(entry, "id", f"{path}: a question on passage {passage} (counted from 0)")
    where = f"{path}: question {key}"
    text = some_text(entry, "question", where)
    impossible = "is_impossible" in entry and field(entry, "is_impossible", bool, where)
    if not answered or impossible:
        return Question(key, text, passage)
    if not entry.get("answers"):
        raise UsageError(
            f'{where}: has no answers; give one, or "is_impossible": true as in SQuAD 2.0, or '
            "pass the file as a test set"
        )
    context = reading.passages[passage]
    answers = [
        (some_text(answer, "text", f"{where}: answer"), field(answer, "answer_start", int, where))
        for answer in field(entry, "answers", list, where)
    ]
    wrong = [
        (answer, start)
        for answer, start in answers
        if not (0 <= start < len(context) and context.startswith(answer, start))
    ]
    if wrong and misplaced == "refuse":
        answer, start = wrong[0]
        raise UsageError(
            f"{where}: the answer {answer!r} is not at character {start} of its passage, where "
            f"there is {context[max(start, 0) :][: len(answer)]!r}; correct answer_start, or "
            "leave such questions out with --leave-out-wrong"
        )
    first, place = answers[0]
    place += len(first) - len(first.lstrip())
    if answers[0] in wrong:
        reading.misplaced.append(key)
        if misplaced == "leave out":
            return None
        place = -1
    return Question(key, text, passage, tuple(answer for answer, _ in answers), place)
