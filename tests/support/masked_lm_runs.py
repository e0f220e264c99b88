"""Corpora for masked language models, and their trainings by command; by ``pytest_plugins``."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.commands import USER_DIR, shape, succeed, train

SHAPE = shape(2, 16, 24, 2, "encoder")
MASKED = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32"]
MASKED += ["--sample-break-mode", "complete"]
CLASSIFY = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
CLASSIFY += ["--init-token", "0", "--separator-token", "2"]


@dataclass(frozen=True)
class Corpora:
    """Folders for fairseq-train: plain text, labelled pairs, and pairs with a number each."""

    text: Path
    pairs: Path
    numbers: Path


@pytest.fixture(scope="session")
def corpora(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    made = Corpora(folder / "text", folder / "pairs", folder / "numbers")
    lines = {n: (toy.text / f"{n}.src").read_text().splitlines() for n in ("train", "valid")}

    def binarise(destination, *flags):
        parts = [f for n in lines for f in (f"--{n}pref", folder / n)]
        succeed("preprocess", "--only-source", *parts, "--destdir", destination, *flags)

    def write(make):
        for name, sentences in lines.items():
            (folder / name).write_text("\n".join(map(make, sentences)) + "\n")

    write(str)
    binarise(made.text)
    for data in (made.pairs, made.numbers):
        for number, make in enumerate((str, lambda s: " ".join(reversed(s.split())))):
            write(make)
            binarise(data / f"input{number}", "--srcdict", made.text / "dict.txt")
    write(lambda s: "long" if len(s.split()) > 5 else "short")
    binarise(made.pairs / "label")
    (made.numbers / "label").mkdir()
    for name, sentences in lines.items():
        numbers = "".join(f"{len(s.split())}\n" for s in sentences)
        (made.numbers / "label" / f"{name}.label").write_text(numbers)
    return made


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
    """The arguments that name *settings*, written down in *folder*."""
    (folder / "here.yaml").write_text("# @package _global_\n" + json.dumps(settings))
    return ["--config-dir", folder, "--config-name", "here", f"hydra.run.dir={folder}"]
