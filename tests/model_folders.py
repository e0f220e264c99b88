"""Models of random weights: their checkpoints, their data."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from fairseq import models, tasks
from fairseq.data import Dictionary
from helpers import TINY, parse
from omegaconf import OmegaConf

from fairseq_posenc.checkpoints.reading import write_checkpoint

WORDS = ["the", "cat", "sleeps", "do@@", "g", "barks", "."]
CODES = "#version: 0.2\nd o\nt h\nth e</w>\nc a\nca t</w>\n"


def dictionary(words: Any = WORDS) -> Dictionary:
    symbols = Dictionary()
    for word in words:
        symbols.add_symbol(word)
    return symbols


@dataclasses.dataclass
class Task:
    """The little of a translation task that building a model needs."""

    source_dictionary: Dictionary
    target_dictionary: Dictionary
    cfg: Any


def write_model(folder: Path, *flags: str) -> Path:
    """Write model.pt, data/ and codes into *folder*."""
    cfg = parse("posenc_transformer", "--position-encoding", "rotary", *TINY, *flags)
    source, target = dictionary(), dictionary(WORDS[::-1])
    (folder / "data").mkdir(parents=True)
    source.save(str(folder / "data" / "dict.en.txt"))
    target.save(str(folder / "data" / "dict.de.txt"))
    (folder / "codes").write_text(CODES)
    cfg.task.data, cfg.task.source_lang, cfg.task.target_lang = str(folder / "data"), "en", "de"
    cfg.task.max_source_positions = cfg.model.max_source_positions = 30
    torch.manual_seed(3)
    write_state(folder, cfg, models.build_model(cfg.model, Task(source, target, cfg.task)))
    return folder


def write_state(folder: Path, cfg: Any, model: Any) -> None:
    """Write model.pt into *folder*, as fairseq-train does."""
    settings = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    state = {"args": None, "cfg": settings, "model": model.state_dict(), "criterion": None}
    history = {"criterion_name": "x", "optimizer_name": None, "lr_scheduler_state": {}}
    state["optimizer_history"] = [{**history, "num_updates": 7}]
    iterator = {"epoch": 2, "iterations_in_epoch": 0, "shuffle": True}
    state["extra_state"], state["task_state"] = {"train_iterator": iterator}, {}
    state["last_optimizer_state"] = {"state": torch.zeros(10)}
    write_checkpoint(state, folder / "model.pt")


LABELS = ["no", "yes", "maybe"]


def write_task_model(folder: Path, task: str, arch: str, *flags: str, pairs: bool = False) -> Path:
    """Write model.pt and data/ of a model of random weights for another task than translation."""
    data = folder / "data"
    cfg = parse(arch, "--position-encoding", "rotary", *flags, task=task)
    if task == "sentence_prediction":
        for part in ("input0", "input1") if pairs else ("input0",):
            (data / part).mkdir(parents=True)
            dictionary().save(str(data / part / "dict.txt"))
        (data / "label").mkdir()
        dictionary(LABELS).save(str(data / "label" / "dict.txt"))
    else:
        data.mkdir(parents=True)
        dictionary().save(str(data / "dict.txt"))
    cfg.task.data = str(data)
    torch.manual_seed(5)
    write_state(folder, cfg, tasks.setup_task(cfg.task).build_model(cfg.model))
    return folder
