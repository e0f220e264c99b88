"""Settings in config.json, and checks that they can be imported."""

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Sequence, TypeVar

from fairseq_posenc.errors import UsageError

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

    def size(self, key: str) -> int:
        """An entry that must be a whole number.

        Raises:
            UsageError: it is missing or not a whole number.
        """
        value = self.entries.get(key)
        if not isinstance(value, int):
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be a number")
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
        name = self.get("architectures", list(known))[0]
        if name not in known:
            raise UsageError(
                f"{self.path}: architecture {name} is not supported; known: {', '.join(known)}"
            )
        return name

    def classes_note(self, head: str) -> str:
        """A note with the meaning of the classes of *head*."""
        names: Dict[str, str] = self.get("id2label", {})
        classes = ", ".join(f"{number} {names[number]}" for number in sorted(names, key=int))
        return f"head {head}, classes: {classes or '0 LABEL_0, 1 LABEL_1'}"
