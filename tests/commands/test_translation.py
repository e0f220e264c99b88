"""A translation model through fairseq's command lines, from text to translations."""

import shutil

import pytest
from support.commands import SMALL, average, generate, pruned, train, validate

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

ROFORMER = ["--arch", "roformer_tiny", *SMALL]
# fairseq groups sentences into batches once a run, by the epoch in which that run began
SAME_BATCHES = ["--update-epoch-batch-itr", "True"]


@pytest.fixture(scope="module")
def plain(toy, tmp_path_factory):
    """Losses of the RoFormer without further flags."""
    return train(toy.joined, tmp_path_factory.mktemp("plain"), *ROFORMER).losses()


def test_training_resuming_averaging_and_generating(toy, tmp_path):
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    flags = [*ROFORMER, *SAME_BATCHES, "--max-epoch", "2"]
    losses = train(toy.separate, whole, *flags, "--save-interval-updates", "6").losses()
    assert len(losses) == 12  # eight updates; training and validation of two epochs
    rest.mkdir()
    shutil.copy(whole / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")  # within the second
    resumed = train(toy.separate, rest, *flags).losses()
    assert resumed.keys() == {"update 7", "update 8", "train 2", "valid 2"}
    assert resumed.items() <= losses.items()
    last = validate(toy.separate, rest / "checkpoint_last.pt", "--max-tokens", "100")
    (entry,) = last.entries("valid")
    assert float(entry["valid_loss"]) == pytest.approx(losses["valid 2"], abs=2e-3)
    checkpoint = average(whole, "--num-epoch-checkpoints", "2")
    assert sorted(generate(toy.separate, checkpoint).hypotheses()) == list(range(24))


def test_quantisation_noise_is_in_training_alone(toy, tmp_path, plain):
    noise = ["--quant-noise-pq", "0.5", "--quant-noise-pq-block-size", "4"]
    losses = train(toy.joined, tmp_path, *ROFORMER, *noise).losses()
    assert losses["update 1"] != plain["update 1"]
    found = [generate(toy.joined, tmp_path / "checkpoint_last.pt").hypotheses() for _ in range(2)]
    assert found[0] == found[1] and len(found[0]) == 24


@pytest.mark.gpu
def test_scalar_quantisation_noise(toy, tmp_path, plain):
    """fairseq moves its scales to CUDA, in stock models too."""
    losses = train(toy.joined, tmp_path, *ROFORMER, "--quant-noise-scalar", "0.5").losses()
    assert losses["update 1"] != plain["update 1"]


def test_keeping_some_layers_is_the_model_with_those_layers(toy, tmp_path):
    layers = ["--encoder-layers", "3", "--decoder-layers", "3"]
    drop = ["--encoder-layerdrop", "0.2", "--decoder-layerdrop", "0.2"]
    train(toy.separate, tmp_path, *ROFORMER, *layers, *drop)
    checkpoint, keep = tmp_path / "checkpoint_last.pt", {"encoder": [0, 2], "decoder": [1]}
    overrides = {f"{side}_layers_to_keep": ",".join(map(str, k)) for side, k in keep.items()}
    found = generate(toy.separate, checkpoint, "--model-overrides", str(overrides)).hypotheses()
    assert found == generate(toy.separate, pruned(checkpoint, keep)).hypotheses()
    assert found != generate(toy.separate, checkpoint).hypotheses()


def test_bleu_while_training(toy, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}']
    bleu += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    first = train(toy.separate, tmp_path, *ROFORMER, *bleu).entries("valid")
    # the checkpoint holds BLEU's counts, which are NumPy arrays
    second = train(toy.separate, tmp_path, *ROFORMER, *bleu, "--max-epoch", "2").entries("valid")
    assert [entry["epoch"] for entry in first + second] == [1, 2]
    assert all(float(entry["valid_bleu"]) >= 0 for entry in first + second)
    assert len(generate(toy.separate, tmp_path / "checkpoint_best.pt").hypotheses()) == 24
