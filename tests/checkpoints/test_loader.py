"""Weights that no training wrote are refused by name wherever a checkpoint is loaded for use."""

import pytest
import torch
from support.model_folders import write_model

from fairseq_posenc.analysis import attention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import average_checkpoints
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint

pytestmark = pytest.mark.refusals

FC1, PROJECTION = "encoder.layers.0.fc1.weight", "self_attn.feature_map.projection"
WRONG = {
    "NaN": (FC1, lambda w: torch.full_like(w, float("nan")), "holds NaN or infinity"),
    "NaN in a buffer": (PROJECTION, lambda w: w * float("nan"), "holds NaN or infinity"),
    "whole numbers": (FC1, lambda w: (9 * w).long(), "holds torch.int64 numbers"),
    "complex numbers": (FC1, lambda w: w + 1j, "is not an ordinary tensor of real numbers"),
    "sparse": (FC1, lambda w: w.to_sparse(), "is not an ordinary tensor of real numbers"),
    "no tensor": (FC1, lambda w: w.tolist(), "is a list, not a tensor"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model with random features and its checkpoint."""
    folder = write_model(tmp_path_factory.mktemp("model"), "--attention", "favor")
    return folder, read_checkpoint(folder / "model.pt")


@pytest.mark.parametrize("wrong", WRONG)
def test_weights_that_no_training_wrote(wrong, model, tmp_path):
    folder, state = model
    where, change, message = WRONG[wrong]
    name = next(name for name in state["model"] if name.endswith(where))
    path = str(tmp_path / "wrong.pt")
    weights = {**state["model"], name: change(state["model"][name])}
    write_checkpoint({**state, "model": weights}, path)
    overrides = {"data": str(folder / "data"), "source_lang": "en", "target_lang": "de"}
    with pytest.raises(UsageError, match=f"{path}: {name} {message}"):
        load(path, overrides=overrides)
    if wrong != "whole numbers":  # averaging does not know the model
        with pytest.raises(UsageError, match=f"{path}: {name} {message}"):
            average_checkpoints([path])


def test_constants_of_fairseq_have_a_number(model, tmp_path):
    for name in ("encoder.version", "decoder.embed_positions._float_tensor"):
        state = {**model[1], "model": {**model[1]["model"], name: torch.zeros(0)}}
        write_checkpoint(state, tmp_path / "empty.pt")
        with pytest.raises(UsageError, match=f"empty.pt: {name} is empty"):
            read_checkpoint(tmp_path / "empty.pt")


def test_an_analysed_model_is_checked_as_well(tmp_path):
    folder = write_model(tmp_path)
    state = read_checkpoint(folder / "model.pt")
    state["model"][FC1] = (9 * state["model"][FC1]).long()
    write_checkpoint(state, folder / "model.pt")
    with pytest.raises(UsageError, match=f"{FC1} holds torch.int64 numbers"):
        attention.load(str(folder / "model.pt"), str(folder / "data" / "dict.en.txt"))
