"""Toy data and trained toy models, as fixtures; a module for ``pytest_plugins``."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import SMALL, shape, succeed, train

TEST_SIZES = (24, 9)


@dataclass(frozen=True)
class Toy:
    """Toy data: sentences of ``a``-words, their reversals in ``b``-words, and alignments.

    Args:
        text: folder with train, valid and a test set of each size in TEST_SIZES.
        separate: binarised for fairseq-train, with a dictionary for each language.
        joined: binarised with one dictionary for both languages, and with alignments.
        empty: binarised with the dictionary of *joined*; its training set is empty.
        long: binarised with the dictionary of *joined*; validation lines have up to 60 words.
    """

    text: Path
    separate: Path
    joined: Path
    empty: Path
    long: Path


def _write_pairs(prefix: Path, count: int, draw: random.Random, longest: int = 9) -> None:
    words = [[draw.randrange(20) for _ in range(draw.randint(2, longest))] for _ in range(count)]
    lines = {
        "src": [" ".join(f"a{n}" for n in sentence) for sentence in words],
        "tgt": [" ".join(f"b{n}" for n in reversed(sentence)) for sentence in words],
        "align": [" ".join(f"{i}-{len(s) - 1 - i}" for i in range(len(s))) for s in words],
    }
    for suffix, text in lines.items():
        whole = "".join(f"{line}\n" for line in text)
        prefix.with_suffix("." + suffix).write_text(whole, encoding="utf-8")


@pytest.fixture(scope="session")
def toy(once: Any) -> Toy:
    """Toy data, binarised by fairseq-preprocess."""
    folder = once("toy", lambda folder: _make(_toy(folder)))
    return _toy(folder)


def _toy(folder: Path) -> Toy:
    return Toy(*(folder / name for name in Toy.__dataclass_fields__))


def _make(made: Toy) -> None:
    made.text.mkdir()
    draw = random.Random(1)
    names = {"train": 60, "valid": 12, **{f"test{size}": size for size in TEST_SIZES}}
    for name, count in names.items():
        _write_pairs(made.text / name, count, draw)
    _write_pairs(made.text / "empty", 0, draw)
    _write_pairs(made.text / "long", 5, draw, longest=60)
    tests = ["--testpref", ",".join(str(made.text / f"test{size}") for size in TEST_SIZES)]
    joined = ["--joined-dictionary", "--align-suffix", "align"]
    known = ["--joined-dictionary", "--srcdict", made.joined / "dict.src.txt"]
    for data, one, other, flags in (
        (made.separate, "train", "valid", tests),
        (made.joined, "train", "valid", [*tests, *joined]),
        (made.empty, "empty", "valid", known),
        (made.long, "train", "long", known),
    ):
        parts = ["--trainpref", made.text / one, "--validpref", made.text / other]
        succeed("preprocess", "-s", "src", "-t", "tgt", "--destdir", data, *parts, *flags)


@pytest.fixture(scope="session")
def trained(toy: Toy, once: Any) -> Path:
    """Folder with the checkpoints of a small RoFormer after 5 and 10 epochs of toy data."""
    flags = ["--arch", "roformer_tiny", *SMALL, "--max-epoch", "10", "--save-interval", "5"]
    return once("trained", lambda folder: train(toy.separate, folder, *flags))


#: Flags of fairseq's own transformer, as small as it can be.
STOCK = ["--arch", "transformer", *shape(1, 8, 8, 2)]


@pytest.fixture(scope="session")
def stock(toy: Toy, once: Any) -> Path:
    """The checkpoint of a stock model after one epoch on the joined data."""
    return once("stock", lambda folder: train(toy.joined, folder, *STOCK)) / "checkpoint_last.pt"
