"""Checkpoints with entries or weights that no training writes are refused; messages name them."""

import copy
from argparse import Namespace

import pytest
import torch
from support.model_folders import write_model
from support.saved_states import state_with

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import average_checkpoints
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint

pytestmark = pytest.mark.refusals

WRONG = [
    ("cfg", {}, "a dictionary of groups of settings"),
    ("cfg.model", None, "a dictionary of a model's settings"),
    ("cfg.model", Namespace(dropout=0.1), "a dictionary of a model's settings, with its name"),
    ("cfg.model.encoder_attention_heads", "four", "a whole number from 1"),
    ("cfg.model.encoder_layers", 10**9, "a whole number from 0 to 10000"),
    ("cfg.model.layer_norm_eps", "small", "a number or None"),
    ("cfg.model.position_encoding", 7, "text or None"),
    ("cfg.model.encoder_normalize_before", "yes", "True or False"),
    ("cfg.task", "translation", "a dictionary of settings"),
    ("cfg.task._name", [], "text or None"),
    ("args", 5, "a dictionary of a model's settings"),
    ("optimizer_history", [], "a list, with an entry"),
    ("optimizer_history.-1", None, "a dictionary"),
    ("optimizer_history.-1.num_updates", "many", "a whole number"),
    ("last_optimizer_state", [], "a dictionary or None"),
    ("extra_state", None, "a dictionary"),
    ("extra_state.train_iterator", [1], "a dictionary or None"),
    ("extra_state.train_iterator.epoch", -1, "a whole number from 0"),
    ("extra_state.fairseq_posenc", [], "a dictionary or None"),
]


@pytest.mark.parametrize("entry, value, wanted", WRONG)
def test_the_entry_is_named_with_what_it_has_to_be(entry, value, wanted, tmp_path):
    state = copy.deepcopy(state_with({"weight": torch.ones(2)}))
    *place, name = entry.split(".")
    holder = state
    for part in place:
        holder = holder[int(part) if isinstance(holder, list) else part]
    if isinstance(holder, Namespace):
        setattr(holder, name, value)
    else:
        holder[int(name) if isinstance(holder, list) else name] = value
    path = tmp_path / "odd.pt"
    torch.save(state, path)
    with pytest.raises(UsageError) as error:
        read_checkpoint(path)
    said = str(error.value)
    assert f"{path}: its entry {entry} is " in said and f"has to be {wanted}" in said


def test_what_fairseq_writes_is_read(tmp_path):
    """Cases: layers listed as text, a time as a tensor, two optimisers, a file from before 0.10."""
    convolutional = state_with({"weight": torch.ones(2)}, encoder_layers="[(512, 3)] * 20")
    convolutional["extra_state"]["previous_training_time"] = torch.tensor(3.5)
    convolutional["last_optimizer_state"] = {"encoder": {"state": {}, "param_groups": []}}
    older = {"model": {}, "args": Namespace(arch="transformer"), "epoch": 3, "optimizer": {}}
    for number, state in enumerate((convolutional, older)):
        torch.save(state, tmp_path / f"{number}.pt")
        assert read_checkpoint(tmp_path / f"{number}.pt").keys() == state.keys()


# --- weights that no training wrote


FC1, PROJECTION = "encoder.layers.0.fc1.weight", "self_attn.feature_map.projection"
WRONG_WEIGHTS = {
    "NaN": (FC1, lambda w: torch.full_like(w, float("nan")), "holds NaN or infinity"),
    "NaN in a buffer": (PROJECTION, lambda w: w * float("nan"), "holds NaN or infinity"),
    "whole numbers": (FC1, lambda w: (9 * w).long(), "holds torch.int64 numbers"),
    "complex numbers": (FC1, lambda w: w + 1j, "is not an ordinary tensor of real numbers"),
    "sparse": (FC1, lambda w: w.to_sparse(), "is not an ordinary tensor of real numbers"),
    "no tensor": (FC1, lambda w: w.tolist(), "is a list, not a tensor"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a FAVOR+ model, and the content of its checkpoint."""
    folder = write_model(tmp_path_factory.mktemp("model"), "--attention", "favor")
    return folder, read_checkpoint(folder / "model.pt")


@pytest.mark.parametrize("wrong", WRONG_WEIGHTS)
def test_weights_that_no_training_wrote(wrong, model, tmp_path):
    folder, state = model
    where, change, message = WRONG_WEIGHTS[wrong]
    name = next(name for name in state["model"] if name.endswith(where))
    path = str(tmp_path / "wrong.pt")
    weights = {**state["model"], name: change(state["model"][name])}
    write_checkpoint({**state, "model": weights}, path)
    overrides = {"data": str(folder / "data"), "source_lang": "en", "target_lang": "de"}
    with pytest.raises(UsageError, match=f"{path}: {name} {message}"):
        load(path, overrides=overrides)
    if wrong != "whole numbers":  # averaging cannot know the model's dtypes
        with pytest.raises(UsageError, match=f"{path}: {name} {message}"):
            average_checkpoints([path])


def test_constants_of_fairseq_have_a_number(model, tmp_path):
    for name in ("encoder.version", "decoder.embed_positions._float_tensor"):
        state = {**model[1], "model": {**model[1]["model"], name: torch.zeros(0)}}
        write_checkpoint(state, tmp_path / "empty.pt")
        with pytest.raises(UsageError, match=f"empty.pt: {name} is empty"):
            read_checkpoint(tmp_path / "empty.pt")
