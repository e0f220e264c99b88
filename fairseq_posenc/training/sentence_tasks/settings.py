"""Settings of sentence tasks: what each key of their YAML file may hold.

Each function returns the value of a key, or raises ValueError with what is expected.
"""

import math
import re
from typing import Any, Callable, Dict, Mapping, Tuple, Union

from fairseq_posenc.flags.yaml_file import count, named, one_of, several, text
from fairseq_posenc.training.sentence_tasks.scores import SCORES

Column = Union[int, str]  # a number from 1, or a name
Files = Tuple[str, ...]  # the first file that exists is read
CLASS_SCORES = tuple(name for name, score in SCORES.items() if not score.regression)
NUMBER_SCORES = tuple(name for name, score in SCORES.items() if score.regression)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _column(value: Any) -> Column:
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    return text(value)


def _columns(value: Any) -> Tuple[Column, ...]:
    found = several(_column)(value)
    if len(found) > 2:
        raise ValueError("expected one column, or two for pairs")
    return found


def _sets(value: Any) -> Dict[str, Files]:
    if isinstance(value, dict):
        return named(several(text), "files by name of the set")(value)
    return {"": several(text)(value)}


def _header(value: Any) -> Union[bool, Tuple[str, ...]]:
    return value if isinstance(value, bool) else several(text)(value)


def label(value: Any) -> str:
    """A label, which has to be one symbol of a dictionary of fairseq."""
    word = text(value)
    if word.split() != [word] or word in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
        raise ValueError(f"the label {word!r} is no word that fairseq could read; rename it")
    return word


def _labels(value: Any) -> Union[None, int, Tuple[str, ...]]:
    if value is None:
        return None
    if not isinstance(value, list):
        return count(value)
    if len(value) < 2:
        raise ValueError("expected two or more labels")
    return several(label)(value)


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
    if not re.fullmatch(r"[0-9.]+(e-[0-9]+)?", text(value)) or not float(value) > 0:
        raise ValueError("expected numbers such as 2e-5")
    return str(value)


def _papers(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise ValueError("expected settings by the name of a paper")
    return value


READ: Dict[str, Callable[[Any], Any]] = {
    "train": several(text),
    "valid": _sets,
    "test": _sets,
    "text": _columns,
    "before": _column,
    "label": _column,
    "id": _column,
    "header": _header,
    "labels": _labels,
    "regression": _regression,
    "scores": several(one_of(*CLASS_SCORES, *NUMBER_SCORES)),
    "positive": label,
    "epochs": count,
    "batch": several(count),
    "lr": several(_rate),
    "lenient": _flag,
    "spans": text,
    "papers": _papers,
}
