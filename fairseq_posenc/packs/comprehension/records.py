"""Fields of JSON objects, whose types are checked as they are read."""

import json
from typing import Any, List, Type, TypeVar

from fairseq_posenc.basics.errors import UsageError

Kind = TypeVar("Kind", str, int, bool, List[Any])
_KINDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list"}
_LONGEST = 60  # characters of a value in messages


def field(record: Any, name: str, kind: Type[Kind], where: str) -> Kind:
    """A field of an object.

    Args:
        record: the object.
        kind: what its field *name* has to hold: str, int, bool or list.
        where: the file and the place in it, at the start of messages.

    Raises:
        UsageError: the record is no object, has no such field, or one of another kind.
    """
    if not isinstance(record, dict) or name not in record:
        raise UsageError(f"{where}: has no {name}; expected {_KINDS[kind]}")
    value: Kind = record[name]
    if type(value) is not kind:  # to Python, true is a whole number
        shown = json.dumps(value, ensure_ascii=False)
        shown = shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
        raise UsageError(f"{where}: {name} is {shown}; expected {_KINDS[kind]}")
    return value


def some_text(record: Any, name: str, where: str) -> str:
    """A field with a text that is not blank; see :func:`field`."""
    text = field(record, name, str, where)
    if not text.strip():
        raise UsageError(f"{where}: its {name} is empty")
    return text
