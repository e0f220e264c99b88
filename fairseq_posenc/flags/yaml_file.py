"""Settings that a user writes in YAML: the file, its keys, and what a key may hold.

A reader takes the value of a key and returns it as the program uses it, or raises ValueError with
what is expected.  Neither PyTorch nor fairseq is imported.
"""

import math
import re
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, Mapping, Sequence, Tuple

import yaml

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import FilePath
from fairseq_posenc.flags.usage import near

Reader = Callable[[Any], Any]
_LONGEST = 100  # characters of a name that is part of the name of a file


class _Loader(yaml.SafeLoader):
    """A loader that refuses a key that is given twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Dict[Any, Any]:
    own = [key for key, _ in node.value]  # keys of a YAML merge may be overridden
    loader.flatten_mapping(node)
    seen = set()
    found: Dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = f"line {key_node.start_mark.line + 1}"
        if not isinstance(key, Hashable):
            raise UsageError(f"{line}: {key}: expected a name before the colon")
        if key in seen:
            raise UsageError(f"{line}: {key}: given twice; rename or remove one")
        if key_node in own:
            seen.add(key)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: FilePath, what: str) -> Any:
    """The content of a YAML file.

    Args:
        what: what it should be, for messages, such as "the file of a plan".

    Raises:
        UsageError: the file cannot be read, is not YAML, or has a key twice.
    """
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; give {what}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8; convert it, for example with iconv") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f"line {mark.line + 1}: "
        problem = getattr(error, "problem", None) or "cannot be read"
        raise UsageError(f"{path}: {line}{problem}; this is not YAML") from error
    except ValueError as error:  # Python refuses what only looks like a number
        raise UsageError(f"{path}: has a number or a date that cannot be read ({error})") from error


def read_keys(found: Mapping[str, Any], known: Mapping[str, Reader], where: str) -> Dict[str, Any]:
    """The values of keys.

    Args:
        found: the content of a mapping in the file.
        known: the reader of each key.
        where: the file and the mapping, for messages.

    Raises:
        UsageError: naming the key, its value, and what would work.
    """
    try:
        return keys(known)(found)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def in_yaml(value: Any) -> str:
    """A value on one line, as it could stand in the file."""
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf).split("\n")[0]


def _of(name: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        given = "" if isinstance(value, dict) else f"{in_yaml(value)}: "
        raise ValueError(f"{name}: {given}{error}") from error


def keys(
    known: Mapping[str, Reader], needed: Sequence[str] = ()
) -> Callable[[Any], Dict[str, Any]]:
    """A reader of a mapping with some of the keys *known* and with all *needed* ones."""

    def read(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"expected some of the keys {', '.join(known)}")
        for key in value:
            if key not in known:
                raise ValueError(f"{key}: unknown key" + near(str(key), list(known)))
        for key in needed:
            if key not in value:
                raise ValueError(f"{key}: missing")
        return {key: _of(key, known[key], setting) for key, setting in value.items()}

    return read


def named(read: Reader, what: str) -> Callable[[Any], Dict[str, Any]]:
    """A reader of a mapping from names to what *read* reads; *what* describes it in messages."""

    def read_all(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"expected {what}")
        for name in value:
            _of("name", plain_name, name)
        return {str(name): _of(name, read, one) for name, one in value.items()}

    return read_all


def text(value: Any) -> str:
    """Reads a text or a number as text."""
    if isinstance(value, bool):
        raise ValueError("is true or false in YAML; write it in quotes")
    if value is None or isinstance(value, (list, dict)) or not str(value).strip():
        raise ValueError("expected a text or a number")
    return str(value)


def plain_name(value: Any) -> str:
    """Reads a name that can be that of a file and has no spaces."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", str(value)):
        raise ValueError("expected letters, digits, '.', '_', '+' and '-', a letter or digit first")
    if len(str(value)) > _LONGEST:
        raise ValueError(f"has {len(str(value))} characters; expected {_LONGEST} or fewer")
    return str(value)


def one_of(*names: str) -> Callable[[Any], str]:
    """A reader of one of some names."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError("unknown" + near(str(value), names))
        return str(value)

    return read


def count(value: Any) -> int:
    """Reads a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("expected a whole number above 0")
    return value


def several(read: Reader) -> Callable[[Any], Tuple[Any, ...]]:
    """A reader of one value, or of a list without repetitions, whose values *read* reads."""

    def read_all(value: Any) -> Tuple[Any, ...]:
        found = tuple(map(read, value if isinstance(value, list) else [value]))
        twice = next((one for one in found if found.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice}: given twice")
        if not found:
            raise ValueError("expected one or more values")
        return found

    return read_all
