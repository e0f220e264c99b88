"""Corpora and training commands for masked language models; a module for ``pytest_plugins``."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from support.commands import USER_DIR, shape, succeed, train

pytest_plugins = ["support.toy_lm"]

SHAPE = shape(2, 16, 24, 2, "encoder")
MASKED = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32"]
MASKED += ["--sample-break-mode", "complete"]
CLASSIFY = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
CLASSIFY += ["--init-token", "0", "--separator-token", "2"]


class Corpora(NamedTuple):
    """Folders for fairseq-train: plain text, pairs with labels, and pairs with numbers."""

    text: Path
    pairs: Path
    numbers: Path


@pytest.fixture(scope="session")
def corpora(toy, corpus, once):
    lines = {n: (toy.text / f"{n}.src").read_text().splitlines() for n in ("train", "valid")}

    def make(folder):
        def write(make):
            for name, sentences in lines.items():
                (folder / name).write_text("".join(f"{make(each)}\n" for each in sentences))

        def binarise(destination, *flags):
            parts = [f for n in lines for f in (f"--{n}pref", folder / n)]
            succeed("preprocess", "--only-source", *parts, "--destdir", destination, *flags)

        for data in ("pairs", "numbers"):
            for number, change in enumerate((str, lambda s: " ".join(reversed(s.split())))):
                write(change)
                binarise(folder / data / f"input{number}", "--srcdict", corpus / "dict.txt")
        write(lambda s: "long" if len(s.split()) > 5 else "short")
        binarise(folder / "pairs" / "label")
        (folder / "numbers" / "label").mkdir()
        for name, sentences in lines.items():
            numbers = "".join(f"{len(s.split())}\n" for s in sentences)
            (folder / "numbers" / "label" / f"{name}.label").write_text(numbers)

    folder = once("corpora", make)
    return Corpora(corpus, folder / "pairs", folder / "numbers")


def pretrain(data, folder, arch, *flags):
    return train(data, folder, "--arch", arch, *SHAPE, *MASKED, *flags)


def hydra_settings(folder, data, model, flags=SHAPE):
    """A configuration for fairseq-hydra-train."""
    sizes = {flag[2:].replace("-", "_"): int(n) for flag, n in zip(flags[::2], flags[1::2])}
    return {
        "common": {"cpu": True, "user_dir": USER_DIR[1], "seed": 1},
        "checkpoint": {"save_dir": str(folder / "checkpoints")},
        "task": {"_name": "masked_lm", "data": str(data), "tokens_per_sample": 32},
        "criterion": {"_name": "masked_lm"},
        "dataset": {"max_tokens": 160, "num_workers": 0},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"lr": [0.01], "max_epoch": 1},
        "model": {**model, **sizes},
    }


def written(settings, folder):
    """Write *settings* to a file in *folder*; returns the arguments that make Hydra read it."""
    (folder / "here.yaml").write_text("# @package _global_\n" + json.dumps(settings))
    return ["--config-dir", folder, "--config-name", "here", f"hydra.run.dir={folder}"]
