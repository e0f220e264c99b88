"""Text whose tokens encode line numbers, and its tasks; a module for ``pytest_plugins``."""

import random

import pytest
from support.conversion import write_ids

from fairseq_posenc.packs.pretraining.masked_lm_pairs import (
    TASK,
    MaskedLMPairsConfig,
    MaskedLMPairsTask,
)

CLS, PAD, END = 0, 1, 2
LONGEST = 24


def text(documents=60):
    """Lines whose tokens are all 4 plus the line's number, and the document of each line."""
    draw, lines, document_of = random.Random(5), [[END], [END]], {}
    for document in range(documents):
        for _ in range(draw.choice([1, 2, 3, 5, 9])):
            document_of[len(lines)] = document
            lines.append([4 + len(lines)] * draw.choice([1, 2, 4, 7, 13]) + [END])
        lines += [[END]] * draw.randint(1, 2)
    return lines, document_of


LINES, DOCUMENT_OF = text()


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    words = "".join(f"w{number} 1\n" for number in range(len(LINES)))
    (folder / "dict.txt").write_text(words)
    write_ids(folder / "train", LINES)
    write_ids(folder / "valid", LINES[:150])
    return folder


def configured(settings, data, **flags):
    flags = {"data": str(data), "tokens_per_sample": LONGEST, "seed": 1, **flags}
    for name, value in flags.items():
        setattr(settings, name, value)
    return settings


def task_of(data, **flags):
    settings = configured(MaskedLMPairsConfig(_name=TASK), data, **flags)
    task = MaskedLMPairsTask.setup_task(settings)
    task.load_dataset("train")
    return task


def samples_of(task, epoch=1, count=10**6):
    """The input, target and relation of each sample in an epoch."""
    samples = task.dataset("train")
    samples.set_epoch(epoch)
    found = (samples[number] for number in range(min(count, len(samples))))
    return [(s["source"].tolist(), s["target"].tolist(), s.get("relation")) for s in found]


def originals(samples):
    return [[s if t == PAD else t for s, t in zip(source, target)] for source, target, _ in samples]


def whole(first, last):
    return [token for line in range(first, last) for token in LINES[line][:-1]]
