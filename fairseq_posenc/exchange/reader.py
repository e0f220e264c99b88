"""Reading and checking the settings, parameters and vocabularies of foreign models."""

import math
import os
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
)

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.checkpoints.reading import refuse_nonfinite
from fairseq_posenc.models.kinds import Parameters
from fairseq_posenc.serving.transformers_tokenizer import (
    ROLES,
    find_files,
    ordinary_symbols,
    read_symbols,
)

Value = TypeVar("Value")
SPECIAL = tuple(ours for ours, _, _ in ROLES)
*LEADING, MASK = SPECIAL
#: The file with fairseq's dictionary, in folders that this plug-in exported.
DICTIONARY = "dict.txt"
#: The limit on lengths of texts, in tokens; longer tables of positions would fill the memory.
LONGEST = 2**24


class Config(NamedTuple):
    """The settings of a foreign model; a method raises a UsageError if an entry is wrong."""

    path: str  # the file, for messages
    entries: Dict[str, Any]  # the settings by name; null counts as absent
    largest: int = LONGEST  # the limit on sizes: the largest number of rows or columns of a tensor

    def get(self, key: str, default: Value) -> Value:
        """The entry *key*, or *default* if the entry is absent or null."""
        value = self.entries.get(key)
        return default if value is None else value

    def size(self, key: str, default: Optional[int] = None) -> int:
        """The entry *key*, a size or a count; it must be present if *default* is None."""
        wanted = f"a whole number from 1 to {self.largest}, the most rows or columns of any tensor"
        return self._checked(key, default, lambda v: _is(v, int) and 0 < v <= self.largest, wanted)

    def length(self, key: str, default: Optional[int] = None) -> int:
        """The entry *key*, a number of tokens; it must be present if *default* is None."""
        wanted = f"a whole number from 1 to {LONGEST}"
        return self._checked(key, default, lambda v: _is(v, int) and 0 < v <= LONGEST, wanted)

    def fraction(self, key: str, default: float) -> float:
        """The entry *key*, a number from 0 to 1, such as a dropout rate."""
        wanted = "a number from 0 to 1"
        return self._checked(key, default, lambda v: _is(v, int, float) and 0 <= v <= 1, wanted)

    def factor(self, key: str, default: Optional[float] = None) -> float:
        """The entry *key*, a number above 0; it must be present if *default* is None."""
        wanted = "a number above 0"
        return self._checked(
            key, default, lambda v: _is(v, int, float) and 0 < v < math.inf, wanted
        )

    def name(self, key: str, default: str) -> str:
        """The entry *key*, a string such as the name of an activation."""
        return self._checked(key, default, lambda v: isinstance(v, str), "a name")

    def group(self, key: str) -> "Config":
        """The entries of the JSON object *key*; no entries if the object is absent."""
        entries = self._checked(key, {}, lambda v: isinstance(v, dict), "a JSON object")
        return self._replace(path=f"{self.path}: {key}", entries=entries)

    def without_aliases(self, aliases: Mapping[str, str]) -> "Config":
        """These settings, with entries renamed from their aliases.

        Args:
            aliases: for each alias of an entry, the name that replaces the alias.

        Raises:
            UsageError: an entry has different values under its two names.
        """
        entries = dict(self.entries)
        for alias, name in aliases.items():
            value = entries.pop(alias, None)
            if value is not None:
                self.same(alias, name)
                entries[name] = value
        return self._replace(entries=entries)

    def same(self, one: str, other: str) -> None:
        """Refuse two entries that have the same meaning but different values."""
        values = self.get(one, None), self.get(other, None)
        if None not in values and values[0] != values[1]:
            raise UsageError(
                f"{self.path}: {one} is {values[0]!r} and {other} is {values[1]!r}, but both must "
                "be equal; correct or delete one of them"
            )

    def flag(self, key: str, default: bool) -> bool:
        """The entry *key*, true or false."""
        return self._checked(key, default, lambda v: isinstance(v, bool), "true or false")

    def _checked(self, key: str, default: Any, good: Callable[[Any], bool], wanted: str) -> Any:
        value = self.get(key, default)
        if not good(value):
            raise UsageError(f"{self.path}: {key} is {value!r}; it must be {wanted}")
        return value

    def one_of(self, key: str, default: Value, known: Iterable[Value], why: str = "") -> Value:
        """The value of *key*; one that is not *known* is refused, with the reason *why* if any."""
        value = self.get(key, default)
        if value not in known:
            names = ", ".join(map(str, known)) + (why and f"; {why}")
            raise UsageError(f"{self.path}: {key} {value} is not supported; known: {names}")
        return value

    def architecture(self, known: Sequence[str]) -> str:
        """The class in config.json, which must be in *known*; by default, the first of these."""
        names = self.get("architectures", list(known))
        name: Any = names[0] if isinstance(names, list) and names else names
        return self._replace(entries={}).one_of("architecture", name, known)


def _is(value: Any, *types: type) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


class Vocabulary(NamedTuple):
    """A foreign vocabulary in the order of fairseq's dictionary."""

    symbols: List[str]  # the ordinary symbols, one per line of dict.txt
    counts: List[int]  # their frequencies
    # (V,): the foreign number of each symbol of fairseq's dictionary; symbols that the foreign
    # vocabulary lacks have higher numbers than all others
    order: Tensor
    source: str  # its file, for messages
    names: Dict[str, str]  # the foreign names of fairseq's special symbols

    @property
    def missing(self) -> int:
        """How many of fairseq's special symbols except ``<mask>`` the foreign vocabulary lacks."""
        return len([name for name in LEADING if name not in self.names])

    @property
    def absent(self) -> Tensor:
        """True for each symbol of fairseq's dictionary that the foreign vocabulary lacks, (V,)."""
        return self.order >= len(self.order) - self.missing

    def rows(self, tensor: Tensor, what: str) -> Tensor:
        """The rows of *tensor* (V, …) in fairseq's order; absent symbols get rows of zeros."""
        rows = len(tensor) if tensor.dim() else 1
        known = len(self.order) - self.missing
        if tensor.dim() == 0 or rows != known:
            raise UsageError(
                f"{what} has {rows} rows, but {self.source} has {known} symbols; give "
                "the vocabulary that the model was trained with"
            )
        zeros = tensor.new_zeros(self.missing, *tensor.shape[1:])
        return torch.cat((tensor, zeros))[self.order]

    def text(self, adds_mask: bool = True) -> str:
        """The content of dict.txt, which lists ``<mask>`` unless the task appends it."""
        lines = [f"{symbol} {count}\n" for symbol, count in zip(self.symbols, self.counts)]
        in_text = MASK in self.names and not adds_mask
        return "".join([*lines, f"{MASK} 1\n"] if in_text else lines)


def renumber(
    symbols: Sequence[str],
    special: Dict[str, str],
    source: str,
    counts: Optional[Sequence[int]] = None,
) -> Vocabulary:
    """Put a foreign vocabulary into fairseq's order.

    Args:
        symbols: the symbols in the order of their foreign numbers.
        special: the foreign names of those symbols in :data:`SPECIAL` that the vocabulary has.
        counts: the frequencies of *symbols*, if known.

    Raises:
        UsageError: a special symbol is missing, a symbol occurs twice, or fairseq could not read a
            symbol from dict.txt.
    """
    ordinary = ordinary_symbols(symbols, special, source)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    lacking = iter(range(len(symbols), len(symbols) + len(LEADING)))
    leading = [numbers[special[name]] if name in special else next(lacking) for name in LEADING]
    last = [numbers[special[MASK]]] if MASK in special else []
    order = [*leading, *ordinary, *last]
    return Vocabulary(
        [symbols[number] for number in ordinary],
        [1 if counts is None else counts[number] for number in ordinary],
        torch.tensor(order),
        source,
        special,
    )


def read_vocabulary(path: str, file: Optional[str], needs_mask: bool = True) -> Vocabulary:
    """Read the vocabulary of a folder of transformers, from vocab.txt or tokenizer.json.

    Args:
        file: the path of a vocab.txt outside the folder, or None.
        needs_mask: whether the vocabulary must contain the mask token of the tokenizer.

    Raises:
        UsageError: the vocabulary is missing, or fairseq's dictionary cannot hold it.
    """
    files = find_files(path)
    symbols, source = read_symbols(files, file)
    special = files.special()
    if not needs_mask and special.get(MASK) not in symbols:
        special.pop(MASK, None)
    return renumber(symbols, special, source)


def dictionary_vocabulary(folder: str, file: Optional[str]) -> Optional[Vocabulary]:
    """The vocabulary of a folder that this plug-in exported, numbered as in its dict.txt.

    Args:
        file: the path of a vocabulary outside the folder, or None.

    Returns:
        the vocabulary, or None if the file is missing or is not a dictionary of fairseq.
    """
    path = file or os.path.join(folder, DICTIONARY)
    if not os.path.basename(path).startswith("dict.") or not os.path.isfile(path):
        return None
    found = read_dictionary(path, adds_mask=False)
    names = {name: name for name in SPECIAL if name in found.indices}
    return renumber(found.symbols, names, path, found.count)


def size_of(tensor: Tensor) -> str:
    """The shape of a tensor, for messages."""
    return " x ".join(str(size) for size in tensor.shape) or "1, without dimensions"


#: Tensors by their names in a foreign checkpoint.
ForeignParameters = Dict[str, Tensor]


class Reader:
    """Converts the parameters of a foreign checkpoint one by one, in float32.

    Args:
        vocabulary: determines the order of rows that belong to symbols.

    Attributes:
        rest: the foreign tensors that have not been taken yet.
        parameters: the converted parameters, by fairseq's names.
        origin: file and foreign name of each parameter.
    """

    def __init__(self, path: str, foreign: ForeignParameters, vocabulary: Vocabulary) -> None:
        self.path = path
        self.vocabulary = vocabulary
        self.rest = dict(foreign)
        self.parameters: Parameters = {}
        self.origin: Dict[str, str] = {}

    def __contains__(self, theirs: str) -> bool:
        return theirs in self.rest

    def take(self, theirs: str) -> Tensor:
        """Take a tensor in float32 out of :attr:`rest`; refuse integers, NaN and infinity."""
        if theirs not in self.rest:
            raise UsageError(f"{self.path}: has no tensor {theirs}")
        value = self.rest.pop(theirs)
        if not value.is_floating_point():
            raise UsageError(
                f"{self.path}: {theirs} holds {value.dtype} numbers; quantised models cannot be "
                "imported; give the original weights"
            )
        refuse_nonfinite(value, theirs, self.path)
        return value.float()

    def put(self, ours: str, value: Tensor, theirs: str) -> None:
        """Store *value*, converted from the foreign tensor *theirs*, under our name *ours*."""
        self.parameters[ours] = value
        self.origin[ours] = f"{self.path}: {theirs}"

    def scale_columns(self, gain: Tensor, names: Sequence[str]) -> None:
        """Multiply the columns of our weights *names* by *gain* (C,); skip absent weights."""
        for name in [name for name in names if name in self.parameters]:
            weight = self.parameters[name]
            if weight.dim() != 2 or weight.size(1) != len(gain):
                raise UsageError(
                    f"{self.origin[name]} has size {size_of(weight)}, but the settings of the "
                    f"model require {len(gain)} columns"
                )
            self.parameters[name] = weight * gain

    def rows(self, theirs: str) -> Tensor:
        """Take a tensor with one row per symbol; return it in the order of fairseq's dictionary."""
        return self.vocabulary.rows(self.take(theirs), f"{self.path}: {theirs}")

    def move(self, theirs: str, ours: str) -> None:
        """Store the foreign tensor *theirs*, unchanged, as *ours*."""
        self.put(ours, self.take(theirs), theirs)

    def move_rows(self, theirs: str, ours: str) -> None:
        """Store a tensor with one row per symbol, in the order of fairseq's dictionary."""
        self.put(ours, self.rows(theirs), theirs)

    def put_identity(self, ours: str, channels: int, theirs: str) -> None:
        """Store an identity projection *ours*, which the foreign module *theirs* does not have."""
        self.put(ours + ".weight", torch.eye(channels), theirs)
        self.put(ours + ".bias", torch.zeros(channels), theirs)

    def drop(self, *prefixes: str) -> List[str]:
        """Discard the tensors whose names start with one of *prefixes*; return their names."""
        dropped = sorted(name for name in self.rest if name.startswith(prefixes))
        for name in dropped:
            del self.rest[name]
        return dropped

    def finish(self, described_by: str) -> None:
        """Refuse a checkpoint with tensors that have not been taken."""
        if self.rest:
            raise UsageError(
                f"{self.path}: unexpected tensor {sorted(self.rest)[0]} (and "
                f"{len(self.rest) - 1} more) for the model that {described_by} describes"
            )
