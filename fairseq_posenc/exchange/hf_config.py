"""Settings in config.json, and checks that they can be imported."""

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Optional, Sequence, TypeVar

from fairseq_posenc.basics.errors import UsageError

#: The head that ``--task sentence_prediction`` looks for.
SENTENCE_HEAD = "sentence_classification_head"

Value = TypeVar("Value")


@dataclass(frozen=True)
class Config:
    """The content of a config.json.

    Args:
        path: the file, for messages.
        entries: its content; null entries count as absent.
    """

    path: str
    entries: Dict[str, Any]

    def get(self, key: str, default: Value) -> Value:
        """The entry *key*, or *default* if there is none."""
        value = self.entries.get(key)
        return default if value is None else value

    def size(self, key: str, default: Optional[int] = None) -> int:
        """An entry that must be a whole number above 0.

        Args:
            key: its name.
            default: value if there is no such entry; None if there must be one.

        Raises:
            UsageError: it is missing or not such a number.
        """
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be a whole number above 0")
        return value

    def fraction(self, key: str, default: float) -> float:
        """An entry that must be a number from 0 to 1, such as a dropout rate.

        Raises:
            UsageError: it is not such a number.
        """
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be a number from 0 to 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """An entry that must be true or false.

        Raises:
            UsageError: it is something else.
        """
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be true or false")
        return value

    def one_of(self, key: str, default: Value, known: Iterable[Value]) -> Value:
        """The entry *key*, or *default* if there is none.

        Raises:
            UsageError: it is not among *known*.
        """
        value = self.get(key, default)
        if value not in known:
            raise UsageError(
                f"{self.path}: {key} {value} is not supported; known: {', '.join(map(str, known))}"
            )
        return value

    def architecture(self, known: Sequence[str]) -> str:
        """The class that wrote the model, or the first of *known* if config.json names none.

        Raises:
            UsageError: it is not among *known*.
        """
        names = self.get("architectures", list(known))
        name: Any = names[0] if isinstance(names, list) and names else names
        if name not in known:
            raise UsageError(
                f"{self.path}: architecture {name} is not supported; known: {', '.join(known)}"
            )
        return name

    def classes_note(self, head: str) -> str:
        """A note with the meaning of the classes of *head*.

        Raises:
            UsageError: ``id2label`` does not map numbers to names.
        """
        names: Dict[str, str] = self.get("id2label", {})
        if not isinstance(names, dict) or not all(number.isdecimal() for number in names):
            raise UsageError(f"{self.path}: id2label is {names!r}; it must name classes by number")
        classes = ", ".join(f"{number} {names[number]}" for number in sorted(names, key=int))
        return f"head {head}, classes: {classes or '0 LABEL_0, 1 LABEL_1'}"
