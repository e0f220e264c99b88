"""Made-up corpora, prepared and pre-trained on by the recipes; by ``pytest_plugins``."""

import random

import pytest
from support.commands import shape
from support.recipes import EXAMPLES, succeed

BERT, CHINESE = EXAMPLES / "bert_pretraining", EXAMPLES / "clue_pretraining"
SUBJECTS = "The cat|A dog|My house|Dr. Brown|The old well-known man".split("|")
VERBS = "sees|likes|finds|does not see|isn't".split("|")
OBJECTS = "the garden|3.5 apples|a (small) dog|\u201enothing\u201c|New York".split("|")
WORDS = "中国 天天 我们 新闻 股票 大学生 足球 比赛 的 了 在 iPhone T恤 2018".split()
FAST = ["--cpu", "--num-workers", "0", "--log-interval", "1"]
TINY = [*shape(1, 16, 16, 2, "encoder"), *FAST, "--tokens-per-sample", "32", "--batch-size", "6"]
UNITS = ["--encoder-layers", "2", "--encoder-embed-dim", "16", "--gau-key-size", "8", *FAST]
ENGLISH = {"SIZE": "90", "LONGEST": "30", "WORKERS": "1"}
MARKED = {"WORDS": "spaces", "OPERATIONS": "30", "WORKERS": "1"}


def sentence(draw):
    return f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}."


def _write(folder, documents, counts):
    (folder / "text").mkdir()
    for split, count in counts.items():
        text = documents(count)
        (folder / "text" / f"{split}.txt").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def prepared(once):
    """Folder with ``text`` (20 and 4 documents) and ``out`` of prepare.sh."""
    draw = random.Random(1)

    def line():
        return " ".join(sentence(draw) for _ in range(draw.randint(1, 9)))

    def make(folder):
        counts = {"train": 20, "valid": 4}
        _write(folder, lambda n: "\n\n\n".join(f"{line()}\n{line()}" for _ in range(n)), counts)
        succeed(BERT / "prepare.sh", "text", "out", cwd=folder, **ENGLISH)

    return once("pretraining", make)


@pytest.fixture(scope="session")
def pretrained(prepared, once):
    """Folder with the checkpoints of a tiny TUPE-R after 20 updates of train.sh."""

    def make(folder):
        given = ("tupe_r_masked_lm_base", prepared / "out" / "data-bin", "run", *TINY)
        succeed(BERT / "train.sh", *given, cwd=folder, UPDATES="20", PRECISION="")

    return once("pretrained", make) / "run"


@pytest.fixture(scope="session")
def chinese(once):
    """Folder with ``text`` (30 and 8 documents) and what prepare.sh made: ``512``, ``diff``."""
    draw = random.Random(1)

    def document():
        return " ".join(
            " ".join([*draw.choices(WORDS, k=draw.randint(3, 12)), "。"])
            for _ in range(draw.randint(1, 60))
        )

    def make(folder):
        counts = {"train": 30, "valid": 8}
        _write(folder, lambda n: "".join(document() + "\n" for _ in range(n)), counts)
        for lengths in ("512", "diff"):
            variables = {**MARKED, "LENGTHS": lengths}
            succeed(CHINESE / "prepare.sh", "text", lengths, cwd=folder, **variables)

    return once("chinese", make)
