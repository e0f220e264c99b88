"""The entries of a foreign model's settings, read and checked."""

from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional, Sequence, TypeVar

from fairseq_posenc.basics.errors import UsageError

Value = TypeVar("Value")


class Config(NamedTuple):
    """The settings of a foreign model; methods that check an entry raise a UsageError."""

    path: str  # the file, for messages
    entries: Dict[str, Any]  # the settings by name; null counts as absent

    def get(self, key: str, default: Value) -> Value:
        """The entry *key*, or *default* if there is none."""
        value = self.entries.get(key)
        return default if value is None else value

    def size(self, key: str, default: Optional[int] = None) -> int:
        """A whole number above 0, which must be there if *default* is None."""
        wanted = "a whole number above 0"
        return self._checked(key, default, lambda v: _is(v, int) and v > 0, wanted)

    def fraction(self, key: str, default: float) -> float:
        """A number from 0 to 1, such as a dropout rate."""
        wanted = "a number from 0 to 1"
        return self._checked(key, default, lambda v: _is(v, int, float) and 0 <= v <= 1, wanted)

    def factor(self, key: str, default: float) -> float:
        """A number above 0."""
        return self._checked(
            key, default, lambda v: _is(v, int, float) and v > 0, "a number above 0"
        )

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return self._checked(key, default, lambda v: isinstance(v, bool), "true or false")

    def _checked(self, key: str, default: Any, good: Callable[[Any], bool], wanted: str) -> Any:
        value = self.get(key, default)
        if not good(value):
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be {wanted}")
        return value

    def one_of(self, key: str, default: Value, known: Iterable[Value]) -> Value:
        """One of *known*."""
        value = self.get(key, default)
        if value not in known:
            names = ", ".join(map(str, known))
            raise UsageError(f"{self.path}: {key} {value} is not supported; known: {names}")
        return value

    def architecture(self, known: Sequence[str]) -> str:
        """The class that wrote the model, or the first of *known* if config.json names none."""
        names = self.get("architectures", list(known))
        name: Any = names[0] if isinstance(names, list) and names else names
        if name not in known:
            raise UsageError(
                f"{self.path}: architecture {name} is not supported; known: {', '.join(known)}"
            )
        return name

    def classes_note(self, head: str) -> str:
        """A note with the meaning of the classes of *head*, from ``id2label``."""
        names: Dict[str, str] = self.get("id2label", {})
        if not isinstance(names, dict) or not all(number.isdecimal() for number in names):
            raise UsageError(f"{self.path}: id2label is {names!r}; it must name classes by number")
        classes = ", ".join(f"{number} {names[number]}" for number in sorted(names, key=int))
        return f"head {head}, classes: {classes or '0 LABEL_0, 1 LABEL_1'}"


def _is(value: Any, *types: type) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)
