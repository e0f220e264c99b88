"""Training a part of a model: the other parameters stay as they are, bit for bit; the commands."""

import re
import shutil
from argparse import Namespace

import pytest
import torch
from fairseq.modules import MultiheadAttention
from support.causal_language_models import tiny as language_model
from support.commands import SMALL, read, train, validate
from support.helpers import EVERY_ENCODING, tiny
from support.masked_language_models import tiny as masked_language_model

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.resuming import check_same_kind

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.properties
#: Encodings without parameters: sinusoids, rotations and biases that are fixed.
FIXED = {"none", "nezha", "sinusoidal", "rotary", "xpos", "alibi", "sandwich", "sinusoidal+rotary"}


def names(found):
    return {name for name, parameter in found.named_parameters() if parameter.requires_grad}


def in_attention(found):
    """Names of the parameters of attentions, their layer norms included, by modules."""
    inside = set()
    for path, module in found.named_modules():
        if isinstance(module, MultiheadAttention) or path.endswith("attn_layer_norm"):
            inside |= {f"{path}.{name}" for name, _ in module.named_parameters()}
    return inside


@pytest.mark.parametrize("encoding", EVERY_ENCODING)
def test_parts_are_what_the_encoding_adds_and_what_attends(encoding):
    added = names(tiny(encoding)) - names(tiny("none"))
    assert bool(added) == (encoding not in FIXED)
    if added:
        assert names(tiny(encoding, "--train-only", "encoding")) == added
    else:
        with pytest.raises(UsageError, match="--train-only encoding: .* has no parameters"):
            tiny(encoding, "--train-only", "encoding")
    attending = tiny(encoding, "--train-only", "attention")
    assert names(attending) == added | in_attention(attending)


def test_other_families_have_the_same_parts():
    for found in (
        language_model("rotary", "--train-only", "attention"),
        masked_language_model("rotary", "--train-only", "attention"),
    ):
        assert names(found) == in_attention(found) != set()


@pytest.mark.parametrize("encoding", ["rotary", "none,t5"])
@pytest.mark.parametrize("flag", ["--checkpoint-activations", "--offload-activations"])
def test_recomputed_layers_above_frozen_embeddings_are_trained(encoding, flag):
    """fairseq's checkpoint gives no gradient to parameters if no tensor that it takes has one."""
    part = ("--train-only", "attention")
    plain, again = (language_model(encoding, *part, *more).train() for more in ([], [flag]))
    again.load_state_dict(plain.state_dict())
    for each in (plain, again):
        each(torch.tensor([[5, 6, 7, 8]]))[0].log_softmax(-1)[..., 5].mean().backward()
    found = dict(again.named_parameters())
    for name, parameter in plain.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(found[name].grad, parameter.grad)


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
    trained = {name for name in after if "attn" in name or "position_bias" in name}
    # a bias of the keys shifts all logits of a query alike
    assert {name for name in trained if not name.endswith("k_proj.bias")} <= changed <= trained
    state = read_checkpoint(str(folder / "checkpoint_last.pt"))["last_optimizer_state"]
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


def test_other_parts_are_another_training():
    changed = {("model", "train_only"): ("attention", "all")}
    cfg = Namespace(checkpoint=Namespace())
    with pytest.raises(UsageError, match="--train-only all: the run in here .* with attention"):
        check_same_kind("here/checkpoint_last.pt", changed, cfg)
