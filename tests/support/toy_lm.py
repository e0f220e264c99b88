"""A small corpus and trained language models, as fixtures; a module for ``pytest_plugins``."""

import re

import pytest
from support.commands import TRAINING, USER_DIR, run, shape, succeed

from fairseq_posenc.models.language_model import MODEL

SHAPE = shape(2, 16, 24, 2, "decoder")
LENGTH = 16
TASK = ["--task", "language_modeling"]
BLOCKS = [*TASK, "--tokens-per-sample", str(LENGTH)]


@pytest.fixture(scope="session")
def corpus(toy, once):
    """A binarised text for fairseq-train; its test set is the same as its validation set."""

    def make(folder):
        for name in ("train", "valid"):
            (folder / name).write_text((toy.text / f"{name}.src").read_text())
        parts = ["--trainpref", folder / "train", "--validpref", folder / "valid"]
        parts += ["--testpref", folder / "valid"]
        succeed("preprocess", "--only-source", *parts, "--destdir", folder)

    return once("corpus", make)


def train_lm(data, folder, arch, *flags):
    """Train with fairseq-train; *flags* come last, so they override the usual ones."""
    usual = ["--save-dir", folder, *TRAINING, "--arch", arch, *SHAPE, *BLOCKS]
    return succeed("train", data, *USER_DIR, *usual, *flags)


@pytest.fixture(scope="session")
def trained_lm(corpus, once):
    """A function that maps an encoding to the checkpoint of a model trained for three epochs."""

    def checkpoint(encoding):
        flags = ["--position-encoding", encoding, "--max-epoch", "3"]
        name = f"trained_lm-{encoding}"
        folder = once(name, lambda folder: train_lm(corpus, folder, MODEL, *flags))
        return folder / "checkpoint_last.pt"

    return checkpoint


def eval_lm(data, checkpoint, *flags):
    """Run fairseq-eval-lm, which may fail."""
    usual = ["--path", checkpoint, "--cpu", "--num-workers", "0", *BLOCKS, "--max-tokens", "200"]
    return run("eval_lm", data, *USER_DIR, *usual, *flags)


def perplexity(finished):
    assert finished.status == 0, finished.err[-2000:]
    return float(re.findall(r"Perplexity: (\S+)", finished.out + finished.err)[-1])


def continued(data, checkpoint, prompts, *flags, batch=1):
    """The continuations that fairseq-interactive writes for *prompts*, by prompt number."""
    search = ["--beam", "2", "--max-len-b", "12", "--cpu", *TASK]
    sizes = ["--buffer-size", batch, "--batch-size", batch]
    arguments = [data, *USER_DIR, "--path", checkpoint, *search, *sizes, *flags]
    lines = "\n".join(prompts) + "\n"
    return succeed("interactive", *arguments, stdin=lines).hypotheses()
