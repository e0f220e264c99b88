"""Toy data, and a stock model trained on them through fairseq's commands.

The fixture ``trained`` is no plug-in's, since that of toy.py has its name: a module that uses it
says ``folder, trained = stock_runs.folder, stock_runs.trained``.
"""

import random
import shutil
from pathlib import Path

import pytest
from support import commands

PLUGIN = commands.USER_DIR
SIZES = [1, 7, 8, 9, 461]
TINY = [
    *("--cpu", "--arch", "transformer", *commands.shape(1, 8, 8, 2)),
    *("--optimizer", "adam", "--lr", 0.001, "--max-epoch", 1, "--num-workers", 0),
    *("--max-tokens", 200, *PLUGIN),
]


def write_text(path, lines, longest=9):
    """Write *lines* random sentences of 2 to *longest* words in two languages."""
    words = [f"w{number}" for number in range(30)]
    text = [random.choices(words, k=random.randint(2, longest)) for _ in range(lines)]
    for language in "ab":
        Path(f"{path}.{language}").write_text(
            "".join(" ".join(line) + "\n" for line in text), encoding="utf-8"
        )


def write_data(folder):
    """Make toy data with test sets of every size, an empty and a long-winded training set."""
    random.seed(1)
    for name, lines, longest in (
        ("train", 40, 9),
        ("valid", 13, 9),
        *((f"test{size}", size, 9) for size in SIZES),
        ("empty", 0, 9),
        ("long", 5, 60),
    ):
        write_text(folder / name, lines, longest)
    tests = ",".join(str(folder / f"test{size}") for size in SIZES)
    pairs = ("-s", "a", "-t", "b", "--joined-dictionary")
    commands.succeed(
        *("preprocess", *pairs, "--destdir", folder / "data", "--trainpref", folder / "train"),
        *("--validpref", folder / "valid", "--testpref", tests),
    )
    for name, train, valid in (("empty", "empty", "valid"), ("long", "train", "long")):
        commands.succeed(
            *("preprocess", *pairs, "--destdir", folder / name, "--trainpref", folder / train),
            *("--validpref", folder / valid, "--srcdict", folder / "data" / "dict.a.txt"),
        )


@pytest.fixture(scope="module")
def folder(once, tmp_path_factory):
    """Toy data, which tests may add to."""
    folder = tmp_path_factory.mktemp("compat") / "toy"
    shutil.copytree(str(once("stock-data", write_data)), str(folder))
    return folder


@pytest.fixture(scope="module")
def trained(once):
    """Train one epoch; return the checkpoint."""
    data = once("stock-data", write_data) / "data"
    run = once("stock-run", lambda run: commands.succeed("train", data, *TINY, "--save-dir", run))
    return run / "checkpoint_last.pt"
