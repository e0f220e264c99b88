"""A translation model of random weights, as a checkpoint, its data, and a model folder."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from fairseq import models
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
    model = models.build_model(cfg.model, Task(source, target, cfg.task))
    settings = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    state = {"args": None, "cfg": settings, "model": model.state_dict(), "criterion": None}
    history = {"criterion_name": "x", "optimizer_name": None, "lr_scheduler_state": {}}
    state["optimizer_history"] = [{**history, "num_updates": 7}]
    iterator = {"epoch": 2, "iterations_in_epoch": 0, "shuffle": True}
    state["extra_state"], state["task_state"] = {"train_iterator": iterator}, {}
    state["last_optimizer_state"] = {"state": torch.zeros(10)}
    write_checkpoint(state, folder / "model.pt")
    return folder
