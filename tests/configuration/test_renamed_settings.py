"""Checkpoints whose settings have names from before a renaming load with the same numbers."""

import pytest
import torch
from fairseq import checkpoint_utils, tasks
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from support.helpers import TINY, parse, sentences

SYMBOLS = [f"w{number}" for number in range(60)]
#: flags of today, and the settings of a checkpoint by the names and values they had
CASES = {
    "bert_ad": (
        ["--position-encoding", "bert_ad", "--norm", "rms", "--init-weights", "default"],
        {"position_encoding": "separate", "norm": "unit", "init_weights": "usual"},
    ),
    "composed": (
        ["--position-encoding", "learned+bert_ad"],
        {"position_encoding": "learned+separate"},
    ),
    "shaw": (
        ["--position-encoding", "shaw", "--shaw-max-distance", "3"],
        {"shaw_distance": 3, "shaw_max_distance": None},
    ),
    "deberta": (
        ["--position-encoding", "deberta", "--deberta-max-distance", "5"],
        {"deberta_distance": 5, "deberta_max_distance": None},
    ),
}
#: younger than the renaming
YOUNGER = ("feed_forward", "encoder_position_encoding", "decoder_position_encoding")
FAMILIES = {
    "masked_lm": ("posenc_masked_lm", ["--encoder-layers", "2", "--encoder-embed-dim", "32"]),
    "translation": ("posenc_transformer", TINY),
    "language_modeling": ("posenc_lm", ["--decoder-layers", "2", "--decoder-embed-dim", "32"]),
}
HEADS = {"masked_lm": "encoder", "language_modeling": "decoder"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the dictionaries of every task."""
    folder = tmp_path_factory.mktemp("data")
    dictionary = Dictionary()
    for symbol in SYMBOLS:
        dictionary.add_symbol(symbol)
    for name in ("dict.txt", "dict.xx.txt", "dict.yy.txt"):
        dictionary.save(str(folder / name))
    return folder


def configuration(family, flags, data):
    """What fairseq-train would work with."""
    arch, shape = FAMILIES[family]
    if family in HEADS:
        side = HEADS[family]
        shape = [*shape, f"--{side}-ffn-embed-dim", "48", f"--{side}-attention-heads", "4"]
    cfg = parse(arch, *shape, *flags, task=family)
    cfg.task.data = str(data)
    if family == "translation":
        cfg.task.source_lang, cfg.task.target_lang = "xx", "yy"
    return cfg


def save(path, cfg, model, former):
    """A checkpoint as one that was written before the renaming."""
    settings = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    saved = {**settings["model"], **former}
    settings["model"] = {
        name: value
        for name, value in saved.items()
        if name not in YOUNGER and not (name in former and value is None)
    }
    state = {"args": None, "cfg": settings, "model": model.state_dict()}
    history = {"criterion_name": "", "optimizer_name": "", "num_updates": 1}
    state["optimizer_history"] = [{**history, "lr_scheduler_state": {}}]
    progress = {"epoch": 1, "iterations_in_epoch": 0}
    torch.save({**state, "task_state": {}, "extra_state": {"train_iterator": progress}}, path)
    return settings["model"]


def outputs(family, model):
    """Logits of two sentences, the second one padded."""
    tokens = sentences(2, 12)
    tokens[1, 7:] = 1
    tokens[:, 0] = 0
    arguments = (tokens,) if family != "translation" else (tokens, torch.tensor([12, 7]), tokens)
    with torch.no_grad():
        return model(*arguments)[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_former_names(tmp_path, data, family, case):
    flags, former = CASES[case]
    cfg = configuration(family, flags, data)
    task = tasks.setup_task(cfg.task)
    today = task.build_model(cfg.model).eval()
    for parameter in today.parameters():  # small initial weights would hide the positions
        torch.nn.init.normal_(parameter, std=0.3)
    path = tmp_path / "checkpoint.pt"
    saved = save(path, cfg, today, former)
    assert {name for name in former if former[name] is not None} <= set(saved)

    (loaded,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    assert torch.equal(outputs(family, loaded.eval()), outputs(family, today))
