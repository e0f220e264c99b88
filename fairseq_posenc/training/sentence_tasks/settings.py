"""Settings of sentence tasks: what each key of their YAML file may hold.

Each function returns the value of a key, or raises ValueError with what is expected.
"""

import math
import re
from typing import Any, Callable, Dict, Mapping, Tuple, Union

from fairseq_posenc.training.sentence_tasks.scores import SCORES

Column = Union[int, str]  # a number from 1, or a name
Files = Tuple[str, ...]  # the first of them that exists is read
CLASS_SCORES = tuple(name for name, score in SCORES.items() if not score.regression)
NUMBER_SCORES = tuple(name for name, score in SCORES.items() if score.regression)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        raise ValueError("is true or false in YAML; write it in quotes")
    if value is None or isinstance(value, (list, dict)) or not str(value).strip():
        raise ValueError("expected a text or a number")
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _several(read: Callable[[Any], Any]) -> Callable[[Any], Tuple[Any, ...]]:
    """One value or a list of them."""

    def several(value: Any) -> Tuple[Any, ...]:
        values = tuple(map(read, value if isinstance(value, list) else [value]))
        if not values or len(set(values)) < len(values):
            raise ValueError("expected one or more, each of them once")
        return values

    return several


def _column(value: Any) -> Column:
    if isinstance(value, int) and not isinstance(value, bool):
        return _count(value)
    return _text(value)


def _columns(value: Any) -> Tuple[Column, ...]:
    found = _several(_column)(value)
    if len(found) > 2:
        raise ValueError("expected one column, or two for pairs")
    return found


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("expected a whole number above 0")
    return value


def _sets(value: Any) -> Dict[str, Files]:
    named = value if isinstance(value, dict) else {"": value}
    return {name and plain_name(name): _several(_text)(files) for name, files in named.items()}


def plain_name(value: Any) -> str:
    """A name that can be that of a file and has no spaces."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", _text(value)):
        raise ValueError("expected letters, digits, '.', '_', '+' and '-' as a name")
    return str(value)


def _header(value: Any) -> Union[bool, Tuple[str, ...]]:
    return value if isinstance(value, bool) else _several(_text)(value)


def label(value: Any) -> str:
    """A label, which has to be one symbol of a dictionary of fairseq."""
    text = _text(value)
    if text.split() != [text] or text in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
        raise ValueError(f"the label {text!r} is no word that fairseq could read; rename it")
    return text


def _labels(value: Any) -> Union[None, int, Tuple[str, ...]]:
    if value is None:
        return None
    if not isinstance(value, list):
        return _count(value)
    if len(value) < 2:
        raise ValueError("expected two or more labels")
    return _several(label)(value)


def _regression(value: Any) -> Union[bool, Tuple[float, float]]:
    if isinstance(value, bool):
        return value
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(map(_finite, numbers)) or not numbers[0] < numbers[1]:
        raise ValueError("expected true, or the smallest and the largest label: [0, 5]")
    return float(numbers[0]), float(numbers[1])


def _finite(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _rate(value: Any) -> str:
    if not re.fullmatch(r"[0-9.]+(e-[0-9]+)?", _text(value)) or not float(value) > 0:
        raise ValueError("expected numbers such as 2e-5")
    return str(value)


def _score(value: Any) -> str:
    if value not in CLASS_SCORES + NUMBER_SCORES:
        raise ValueError(f"expected some of {', '.join(CLASS_SCORES + NUMBER_SCORES)}")
    return str(value)


def _papers(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise ValueError("expected settings by the name of a paper")
    return value


READ: Dict[str, Callable[[Any], Any]] = {
    "train": _several(_text),
    "valid": _sets,
    "test": _sets,
    "text": _columns,
    "before": _column,
    "label": _column,
    "id": _column,
    "header": _header,
    "labels": _labels,
    "regression": _regression,
    "scores": _several(_score),
    "positive": label,
    "epochs": _count,
    "batch": _several(_count),
    "lr": _several(_rate),
    "lenient": _flag,
    "spans": _text,
    "papers": _papers,
}
