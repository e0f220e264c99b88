"""Checkpoints and data of models with random weights."""

from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Sequence

import torch
from fairseq import models, tasks
from fairseq.data import Dictionary
from omegaconf import OmegaConf, open_dict
from support.commands import shape
from support.helpers import TINY, parse

from fairseq_posenc import cli
from fairseq_posenc.checkpoints.reading import write_checkpoint

WORDS = ["the", "cat", "sleeps", "do@@", "g", "barks", "."]
MERGES = ["d o", "t h", "th e</w>", "c a", "ca t</w>", "e p", "s l", "sl e", "sle ep"]
MERGES += ["sleep s</w>", "b a", "ba r", "bar k", "bark s</w>"]
CODES = "\n".join(["#version: 0.2", *MERGES, ""])


def dictionary(words: Any = WORDS) -> Dictionary:
    symbols = Dictionary()
    for word in words:
        symbols.add_symbol(word)
    return symbols


class Task(NamedTuple):
    """The part of a task that building a model needs."""

    source_dictionary: Dictionary
    target_dictionary: Dictionary
    cfg: Any


def write_model(folder: Path, *flags: str, words: Sequence[str] = WORDS) -> Path:
    """Write model.pt, data/ and codes into *folder*, with dictionaries of *words*."""
    cfg = parse("posenc_transformer", "--position-encoding", "rotary", *TINY, *flags)
    cfg.task.max_source_positions = cfg.model.max_source_positions = 30
    (folder / "data").mkdir(parents=True)
    (folder / "codes").write_text(CODES)
    write_state(folder, cfg, translation_model(cfg, folder / "data", words, words[::-1]))
    return folder


def translation_model(cfg: Any, data: Path, source: Sequence[str], target: Sequence[str]) -> Any:
    """A random model with dictionaries of *source* and *target*, which are written to *data*."""
    sides = dictionary(source), dictionary(target)
    for side, language in zip(sides, ("en", "de")):
        side.save(str(data / f"dict.{language}.txt"))
    cfg.task.data, cfg.task.source_lang, cfg.task.target_lang = str(data), "en", "de"
    torch.manual_seed(3)
    return models.build_model(cfg.model, Task(*sides, cfg.task))


NUMBERED = [f"w{number}" for number in range(40)]
SHARED = ["--share-all-embeddings"]
NORMS_FIRST = ["--encoder-normalize-before", "--decoder-normalize-before"]


@torch.no_grad()
def write_translation(
    folder: Path,
    *flags: str,
    target: Optional[Sequence[str]] = None,
    arch: str = "posenc_transformer",
) -> Path:
    """Write a translation model of NUMBERED words; none of its weights is 0 or 1.

    *target* are other words for the target language.  Returns the path of the model.
    """
    folder.mkdir(parents=True)
    cfg: Any = parse(arch, *TINY, *flags)
    for name in ("max_source_positions", "max_target_positions"):
        setattr(cfg.task, name, 60)
        setattr(cfg.model, name, 60)
    model = translation_model(cfg, folder, NUMBERED, NUMBERED if target is None else target)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    write_state(folder, cfg, model)
    return folder / "model.pt"


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
ENCODER, DECODER = (shape(2, 16, 24, 2, side) for side in ("encoder", "decoder"))
LENGTH = ["--tokens-per-sample", "24"]
PREDICTION = ["--criterion", "sentence_prediction", "--init-token", "0", "--max-positions", "16"]
TASKS = {
    "masked_lm": ("posenc_masked_lm", *ENCODER, *LENGTH),
    "language_modeling": ("posenc_lm", *DECODER, *LENGTH),
    "sentence_prediction": ("posenc_masked_lm", *ENCODER, *PREDICTION, "--num-classes", "3"),
    "sentence_ranking": (
        *("posenc_masked_lm", *ENCODER, "--criterion", "sentence_ranking", "--num-classes", "2"),
        *("--init-token", "0", "--max-positions", "16"),
    ),
}

#: The content of further data files, by task; tests of packs add entries here and to TASKS.
FILES: Dict[str, Dict[str, str]] = {}


def write_task_model(
    folder: Path, task: str, pairs: bool = False, segments: int = 0, **settings: Any
) -> Path:
    """Write model.pt and data/ for one of TASKS; *settings* replace settings of the task."""
    arch, *flags = TASKS[task]
    cfg = parse(arch, "--position-encoding", "rotary", *flags, task=task)
    cfg.task.data = str(folder / "data")
    with open_dict(cfg):
        for name, value in settings.items():
            setattr(cfg.task, name, value)
        if task != "language_modeling":
            cfg.model.num_segments = segments
    parts = {"": WORDS}
    if task == "sentence_prediction":
        parts = {"input0": WORDS, "label": LABELS, **({"input1": WORDS} if pairs else {})}
    if task == "sentence_ranking":
        parts = {"input0": WORDS}
    for part, words in parts.items():
        (folder / "data" / part).mkdir(parents=True)
        dictionary(words).save(str(folder / "data" / part / "dict.txt"))
    for name, content in FILES.get(task, {}).items():
        (folder / "data" / name).write_text(content)
    torch.manual_seed(5)
    write_state(folder, cfg, tasks.setup_task(cfg.task).build_model(cfg.model))
    return folder


def pack(made: Path, out: Path, *flags: Any) -> Path:
    """Pack the model and the data of *made* into the model folder *out*."""
    words = ("pack", made / "model.pt", out, "--data", made / "data", *flags)
    assert not cli.main([str(word) for word in words])
    return out
