"""Parameters and vocabularies of other toolkits, read and checked."""

import os
from typing import Dict, List, NamedTuple, Optional, Sequence

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

SPECIAL = tuple(ours for ours, _, _ in ROLES)
*LEADING, MASK = SPECIAL
#: fairseq's dictionary, in folders that were written here.
DICTIONARY = "dict.txt"


class Vocabulary(NamedTuple):
    """A foreign vocabulary in fairseq's order."""

    symbols: List[str]  # the ordinary symbols, one per line of dict.txt
    counts: List[int]  # their frequencies
    # foreign number of each symbol of fairseq's dictionary, (V,); those that it lacks have the
    # numbers behind its last
    order: Tensor
    source: str  # its file, for messages
    names: Dict[str, str]  # its names of fairseq's special symbols

    @property
    def missing(self) -> int:
        """The number of fairseq's special symbols that it lacks, which language models can do."""
        return len([name for name in LEADING if name not in self.names])

    @property
    def absent(self) -> Tensor:
        """True for each symbol of fairseq's dictionary that it lacks, (V,)."""
        return self.order >= len(self.order) - self.missing

    def rows(self, tensor: Tensor, what: str) -> Tensor:
        """The rows of *tensor* (V, …) in the order of fairseq's dictionary, zeros where none is."""
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
        """The content of dict.txt, for a task that appends ``<mask>``, or does not."""
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
        special: the foreign name of each of :data:`SPECIAL`, except those that it lacks.
        counts: frequencies, if known.

    Raises:
        UsageError: a special symbol is missing, a symbol occurs twice, or fairseq could not read a
            symbol back.
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
        file: a vocab.txt elsewhere.
        needs_mask: whether it must have the ``<mask>`` that its tokenizer names.

    Raises:
        UsageError: it is missing, or fairseq's dictionary cannot hold it.
    """
    files = find_files(path)
    symbols, source = read_symbols(files, file)
    special = files.special()
    if not needs_mask and special.get(MASK) not in symbols:
        special.pop(MASK, None)
    return renumber(symbols, special, source)


def dictionary_vocabulary(folder: str, file: Optional[str]) -> Optional[Vocabulary]:
    """The vocabulary of a folder that was written here, whose numbers are those of its dict.txt.

    Args:
        file: a dictionary or another vocabulary elsewhere, if one was given.

    Returns:
        the vocabulary, or None if there is no dictionary.
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


#: Parameters by their names in a foreign checkpoint.
ForeignParameters = Dict[str, Tensor]


class Reader:
    """The parameters of a foreign checkpoint, in float32, as they are moved one by one.

    Args:
        vocabulary: gives the order of rows that belong to symbols.

    Attributes:
        rest: the tensors not taken yet.
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
        """Take a tensor in float32 from :attr:`rest`; integers, NaN and infinity are refused."""
        if theirs not in self.rest:
            raise UsageError(f"{self.path}: has no tensor {theirs}")
        value = self.rest.pop(theirs)
        if not value.is_floating_point():
            raise UsageError(
                f"{self.path}: {theirs} holds {value.dtype} numbers; quantised models cannot be "
                "imported, give the original weights"
            )
        refuse_nonfinite(value, theirs, self.path)
        return value.float()

    def put(self, ours: str, value: Tensor, theirs: str) -> None:
        """Store *value*, converted from the foreign tensor *theirs*, under fairseq's name."""
        self.parameters[ours] = value
        self.origin[ours] = f"{self.path}: {theirs}"

    def scale_columns(self, gain: Tensor, names: Sequence[str]) -> None:
        """Multiply the columns of our weights *names*, where present, by a *gain* (C) that fits."""
        for name in [name for name in names if name in self.parameters]:
            weight = self.parameters[name]
            if weight.dim() != 2 or weight.size(1) != len(gain):
                raise UsageError(
                    f"{self.origin[name]} has size {size_of(weight)}, but the settings beside it "
                    f"require {len(gain)} columns"
                )
            self.parameters[name] = weight * gain

    def move(self, theirs: str, ours: str) -> None:
        """Move a tensor unchanged."""
        self.put(ours, self.take(theirs), theirs)

    def move_rows(self, theirs: str, ours: str) -> None:
        """Move a tensor with one row per symbol, reordered as in fairseq's dictionary."""
        rows = self.vocabulary.rows(self.take(theirs), f"{self.path}: {theirs}")
        self.put(ours, rows, theirs)

    def put_identity(self, ours: str, channels: int, theirs: str) -> None:
        """Store an identity projection where the foreign module *theirs* has none."""
        self.put(ours + ".weight", torch.eye(channels), theirs)
        self.put(ours + ".bias", torch.zeros(channels), theirs)

    def drop(self, *prefixes: str) -> List[str]:
        """Discard tensors that are not needed; returns their names."""
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
