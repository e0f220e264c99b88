"""A made-up Chinese corpus, prepared and pre-trained on by the recipe; by ``pytest_plugins``."""

import random

import pytest
from support.recipes import EXAMPLES, succeed

RECIPE = EXAMPLES / "clue_pretraining"
RUN = "runs/clue_pretraining/gau"  # where train.sh writes
WORDS = "中国 天天 我们 新闻 股票 大学生 足球 比赛 的 了 在 iPhone T恤 2018".split()
TINY = [
    *("--arch", "gau_masked_lm_tiny", "--encoder-layers", "2", "--encoder-embed-dim", "16"),
    *("--gau-key-size", "8", "--num-workers", "0"),
]


def sentence(draw):
    """Words and a full stop, separated by spaces."""
    return " ".join([*draw.choices(WORDS, k=draw.randint(3, 12)), "。"])


@pytest.fixture(scope="session")
def chinese(once):
    """Folder with ``text`` (30 and 8 documents) and what prepare.sh made: ``fixed``, ``varied``."""
    return once("chinese", _prepare)


def _prepare(folder):
    (folder / "text").mkdir()
    draw = random.Random(1)
    for split, count in (("train", 30), ("valid", 8)):
        lines = [" ".join(sentence(draw) for _ in range(draw.randint(1, 60))) for _ in range(count)]
        (folder / "text" / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for out, lengths in (("fixed", "512"), ("varied", "diff")):
        options = ("--segmented", "--bpe-operations", "30", "--workers", "1", "--lengths", lengths)
        succeed(RECIPE / "prepare.sh", "text", out, *options, cwd=folder)


@pytest.fixture(scope="session")
def chinese_model(chinese, once):
    """Folder with the checkpoints of a tiny GAU after 10 updates of train.sh."""
    data = chinese / "fixed" / "data-bin"
    return once("chinese_model", lambda folder: _train(data, folder)) / RUN


def _train(data, folder):
    options = ("--cpu", "--updates", "10", "--batch", "4", "--samples-per-gpu", "2")
    flags = (*TINY, "--tokens-per-sample", "64", "--log-interval", "1")
    succeed(RECIPE / "train.sh", "gau", data, *options, "--", *flags, cwd=folder)
