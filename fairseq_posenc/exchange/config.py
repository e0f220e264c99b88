"""The entries of a foreign model's settings, read and checked."""

import math
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, TypeVar

from fairseq_posenc.basics.errors import UsageError

Value = TypeVar("Value")
#: More tokens than any text has; tables of positions for as many would fill the memory.
LONGEST = 2**24


class Config(NamedTuple):
    """The settings of a foreign model; methods that check an entry raise a UsageError."""

    path: str  # the file, for messages
    entries: Dict[str, Any]  # the settings by name; null counts as absent
    largest: int = LONGEST  # the most rows or columns of a tensor, which no size exceeds

    def get(self, key: str, default: Value) -> Value:
        """The entry *key*, or *default* if there is none."""
        value = self.entries.get(key)
        return default if value is None else value

    def size(self, key: str, default: Optional[int] = None) -> int:
        """A size of tensors or their number, which must be there if *default* is None."""
        wanted = f"a whole number from 1 to {self.largest}, the most rows or columns of a tensor"
        return self._checked(key, default, lambda v: _is(v, int) and 0 < v <= self.largest, wanted)

    def length(self, key: str, default: Optional[int] = None) -> int:
        """A number of tokens, such as the longest text, which must be there without *default*."""
        wanted = f"a whole number from 1 to {LONGEST}"
        return self._checked(key, default, lambda v: _is(v, int) and 0 < v <= LONGEST, wanted)

    def fraction(self, key: str, default: float) -> float:
        """A number from 0 to 1, such as a dropout rate."""
        wanted = "a number from 0 to 1"
        return self._checked(key, default, lambda v: _is(v, int, float) and 0 <= v <= 1, wanted)

    def factor(self, key: str, default: Optional[float] = None) -> float:
        """A number above 0, which must be there if *default* is None."""
        wanted = "a number above 0"
        return self._checked(
            key, default, lambda v: _is(v, int, float) and 0 < v < math.inf, wanted
        )

    def name(self, key: str, default: str) -> str:
        """A text, such as the name of an activation."""
        return self._checked(key, default, lambda v: isinstance(v, str), "a name")

    def group(self, key: str) -> "Config":
        """The entries in a JSON object, none where it is absent."""
        entries = self._checked(key, {}, lambda v: isinstance(v, dict), "a JSON object")
        return self._replace(path=f"{self.path}: {key}", entries=entries)

    def without_aliases(self, aliases: Mapping[str, str]) -> "Config":
        """The same entries, those with several names under one of them.

        Args:
            aliases: the other names, each with the one that stays.

        Raises:
            UsageError: an entry has different values under its names.
        """
        entries = dict(self.entries)
        for alias, name in aliases.items():
            value = entries.pop(alias, None)
            if value is not None:
                self.same(alias, name)
                entries[name] = value
        return self._replace(entries=entries)

    def same(self, one: str, other: str) -> None:
        """Refuse two entries that differ, though they say the same thing."""
        values = self.get(one, None), self.get(other, None)
        if None not in values and values[0] != values[1]:
            raise UsageError(
                f"{self.path}: {one} is {values[0]!r} and {other} is {values[1]!r}, which must be "
                "the same; correct one of them, or leave it out"
            )

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return self._checked(key, default, lambda v: isinstance(v, bool), "true or false")

    def _checked(self, key: str, default: Any, good: Callable[[Any], bool], wanted: str) -> Any:
        value = self.get(key, default)
        if not good(value):
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be {wanted}")
        return value

    def one_of(self, key: str, default: Value, known: Iterable[Value], why: str = "") -> Value:
        """One of *known*; *why* is what the message says of other values."""
        value = self.get(key, default)
        if value not in known:
            names = ", ".join(map(str, known)) + (why and f"; {why}")
            raise UsageError(f"{self.path}: {key} {value} is not supported; known: {names}")
        return value

    def architecture(self, known: Sequence[str]) -> str:
        """The class that wrote the model, or the first of *known* if config.json names none."""
        names = self.get("architectures", list(known))
        name: Any = names[0] if isinstance(names, list) and names else names
        return self._replace(entries={}).one_of("architecture", name, known)


def _is(value: Any, *types: type) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)
