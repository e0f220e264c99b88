"""Toy data and a trained toy model; by ``pytest_plugins``."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import SMALL, succeed, train

TEST_SIZES = (24, 1, 7, 8, 9, 461)


@dataclass(frozen=True)
class Toy:
    """Toy data: sentences of ``a``-words and their reversal in ``b``-words, with alignments.

    Args:
        text: folder with train, valid and one test set for each of TEST_SIZES.
        separate: the same for fairseq-train, with a dictionary for each side.
        joined: the same with one dictionary for both, and with alignments.
    """

    text: Path
    separate: Path
    joined: Path


def _write_pairs(prefix: Path, count: int, draw: random.Random) -> None:
    words = [[draw.randrange(20) for _ in range(draw.randint(2, 9))] for _ in range(count)]
    lines = {
        "src": [" ".join(f"a{n}" for n in sentence) for sentence in words],
        "tgt": [" ".join(f"b{n}" for n in reversed(sentence)) for sentence in words],
        "align": [" ".join(f"{i}-{len(s) - 1 - i}" for i in range(len(s))) for s in words],
    }
    for suffix, text in lines.items():
        prefix.with_suffix("." + suffix).write_text("\n".join(text) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def toy(once: Any) -> Toy:
    """Toy data, through fairseq-preprocess."""
    folder = once("toy", lambda folder: _make(_toy(folder)))
    return _toy(folder)


def _toy(folder: Path) -> Toy:
    return Toy(folder / "text", folder / "separate", folder / "joined")


def _make(made: Toy) -> None:
    made.text.mkdir()
    draw = random.Random(1)
    names = {"train": 60, "valid": 12, **{f"test{size}": size for size in TEST_SIZES}}
    for name, count in names.items():
        _write_pairs(made.text / name, count, draw)
    flags = ["-s", "src", "-t", "tgt", "--trainpref", made.text / "train"]
    flags += ["--validpref", made.text / "valid"]
    flags += ["--testpref", ",".join(str(made.text / f"test{size}") for size in TEST_SIZES)]
    succeed("preprocess", *flags, "--destdir", made.separate)
    joined = ("--joined-dictionary", "--align-suffix", "align")
    succeed("preprocess", *flags, "--destdir", made.joined, *joined)


@pytest.fixture(scope="session")
def trained(toy: Toy, once: Any) -> Path:
    """Folder with the checkpoints of a small RoFormer after 5 and 10 epochs of toy data."""
    flags = ["--arch", "roformer_tiny", *SMALL, "--max-epoch", "10", "--save-interval", "5"]
    return once("trained", lambda folder: train(toy.separate, folder, *flags))
