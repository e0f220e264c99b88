"""A trained model gets another encoding: validated at update 0, trained in part, resumed."""

import re
import shutil

import pytest
import torch
from support.commands import SMALL, read, refusal, train, validate

from fairseq_posenc.checkpoints.reading import read_checkpoint

pytest_plugins = ["support.toy"]

FLAGS = ["--arch", "posenc_transformer", *SMALL, "--update-epoch-batch-itr", "True"]
FLAGS += ["--max-epoch", "2", "--train-only", "attention", "--position-encoding", "t5"]


@pytest.fixture(scope="module")
def swapped(toy, trained, tmp_path_factory):
    """A rotary model that goes on as one with T5's biases, its log, and the checkpoint it was."""
    folder, base = tmp_path_factory.mktemp("swapped"), trained / "checkpoint_last.pt"
    start = ["--finetune-from-model", base, "--validate-at-start", "--save-interval-updates", "6"]
    return folder, train(toy.separate, folder, *FLAGS, *start), base


def test_the_rest_is_kept_bit_for_bit_and_has_no_state_of_the_optimizer(swapped):
    folder, _, base = swapped
    before, (after, _) = read(base)[0], read(folder / "checkpoint_last.pt")
    changed = {name for name, x in after.items() if not torch.equal(x, before.get(name, x[:0]))}
    assert changed and all("attn" in name or "position_bias" in name for name in changed)
    state = read_checkpoint(str(folder / "checkpoint_last.pt"))["last_optimizer_state"]
    trained = [name for name in after if "attn" in name or "position_bias" in name]
    sizes = sum(after[name].numel() for name in trained)
    assert sum(entry["exp_avg"].numel() for entry in state["state"].values()) == sizes


def test_update_0_is_what_no_training_leaves(toy, swapped, tmp_path):
    """The loss is that of a checkpoint after an update with a learning rate of zero."""
    _, log, base = swapped
    first = log.entries("valid")[0]
    assert first["valid_num_updates"] == "0"
    still = ["--finetune-from-model", base, "--lr", "0", "--max-update", "1"]
    train(toy.separate, tmp_path, *FLAGS, *still)
    same = validate(toy.separate, tmp_path / "checkpoint_last.pt", "--max-tokens", "500")
    (loss,) = re.findall(r'"valid_loss": ("?[\d.]+)', same.out + same.err)
    assert float(first["valid_loss"]) == float(loss.strip('"'))


def test_a_training_goes_on_as_without_that_validation_and_as_one_uninterrupted(
    toy, swapped, tmp_path
):
    folder, _, base = swapped
    plain, rest = tmp_path / "plain", tmp_path / "rest"
    train(toy.separate, plain, *FLAGS, "--finetune-from-model", base)
    rest.mkdir()
    shutil.copy(folder / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")
    log = train(toy.separate, rest, *FLAGS, "--validate-at-start")
    assert "0" not in [entry["valid_num_updates"] for entry in log.entries("valid")]
    want = read(folder / "checkpoint_last.pt")[0]
    for other in (plain, rest):
        found = read(other / "checkpoint_last.pt")[0]
        assert all(torch.equal(value, found[name]) for name, value in want.items())


def test_other_parts_are_another_training(toy, swapped, tmp_path):
    shutil.copy(swapped[0] / "checkpoint_last.pt", tmp_path)
    message = refusal(toy.separate, tmp_path, *FLAGS, "--max-epoch", "3", "--train-only", "all")
    assert "--train-only all" in message and "was trained with attention" in message
