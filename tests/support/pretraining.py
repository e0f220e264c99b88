"""A made-up corpus, prepared and pre-trained on by the recipe; by ``pytest_plugins``."""

import random

import pytest
from support.commands import shape
from support.recipes import EXAMPLES, succeed

RECIPE = EXAMPLES / "bert_pretraining"
RUN = "runs/bert_pretraining/tupe_r"  # where train.sh writes
SUBJECTS = "The cat|A dog|My house|Dr. Brown|The old well-known man".split("|")
VERBS = "sees|likes|finds|does not see|isn't".split("|")
OBJECTS = "the garden|3.5 apples|a (small) dog|\u201enothing\u201c|New York".split("|")
TINY = [*shape(1, 16, 16, 2, "encoder"), "--num-workers", "0"]


def sentence(draw):
    return f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}."


def document(draw):
    return [" ".join(sentence(draw) for _ in range(draw.randint(1, 9))) for _ in range(4)]


@pytest.fixture(scope="session")
def prepared(once):
    """Folder with ``text`` (20 and 4 documents), ``out`` of prepare.sh, and what it printed."""
    return once("pretraining", _prepare)


def _prepare(folder):
    (folder / "text").mkdir()
    draw = random.Random(1)
    for split, count in (("train", 20), ("valid", 4)):
        documents = ["\n".join(document(draw)) for _ in range(count)]
        (folder / "text" / f"{split}.txt").write_text("\n\n\n".join(documents), encoding="utf-8")
    options = ("--bpe-operations", "40", "--max-line", "30", "--workers", "1")
    result = succeed(RECIPE / "prepare.sh", "text", "out", *options, cwd=folder)
    (folder / "messages").write_text(result.stderr)


@pytest.fixture(scope="session")
def pretrained(prepared, once):
    """Folder with the checkpoints of a tiny TUPE-R after 20 updates of train.sh."""
    data = prepared / "out" / "data-bin"
    return once("pretrained", lambda folder: _train(data, folder)) / RUN


def _train(data, folder):
    options = ("--cpu", "--updates", "20", "--batch", "6", "--samples-per-gpu", "4")
    flags = (*TINY, "--tokens-per-sample", "32", "--log-interval", "1")
    succeed(RECIPE / "train.sh", "tupe_r", data, *options, "--", *flags, cwd=folder)
