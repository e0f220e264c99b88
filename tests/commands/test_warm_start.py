"""A training goes on with another position encoding, through fairseq's command lines."""

import pytest
from support.commands import NO_DROPOUT, SMALL, refusal, train
from support.warm_starts import carried_over, starting_from

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

LEARNED_TABLES = ["decoder.embed_positions.weight", "encoder.embed_positions.weight"]
LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos"]
ROFORMER = ["--arch", "roformer_tiny"]


@pytest.fixture(scope="module")
def stock(toy, tmp_path_factory):
    """Checkpoint of fairseq's transformer, with sinusoidal positions."""
    folder = tmp_path_factory.mktemp("stock")
    train(toy.separate, folder, "--arch", "transformer", *SMALL)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def stock_learned(toy, tmp_path_factory):
    """Checkpoint of fairseq's transformer, with learned positions."""
    folder = tmp_path_factory.mktemp("learned")
    train(toy.separate, folder, "--arch", "transformer", *SMALL, *LEARNED)
    return folder / "checkpoint_last.pt"


def carry_over(data, checkpoint, folder, *flags, by="--restore-file"):
    """Train on from *checkpoint*; returns what the log lists as left out and as new."""
    log = train(data, folder, *SMALL, *flags, *starting_from(checkpoint, by))
    return carried_over(log, checkpoint, folder)


@pytest.mark.parametrize("by", ["--restore-file", "--finetune-from-model"])
def test_stock_continues_as_a_roformer(by, toy, stock, stock_learned, tmp_path):
    for source, left_out in ((stock, []), (stock_learned, LEARNED_TABLES)):
        folder = tmp_path / source.parent.name
        assert carry_over(toy.separate, source, folder, *ROFORMER, by=by) == (left_out, [])


def test_sizes_that_differ_are_named(toy, stock, tmp_path):
    message = refusal(toy.separate, tmp_path, *ROFORMER, "--finetune-from-model", stock)
    assert "size mismatch for encoder.embed_tokens.weight" in message
    sizes = message.partition("give its ")[2]
    for size in ("embed-dim 16", "ffn-embed-dim 24", "attention-heads 2"):
        assert f"--encoder-{size}" in sizes
    assert "layers" not in sizes  # as many in both


@pytest.mark.parametrize(
    "flags, new",
    [
        (["--arch", "transformer"], []),
        (["--arch", "posenc_transformer", "--position-encoding", "sinusoidal"], []),
        (["--arch", "posenc_transformer", "--position-encoding", "learned"], LEARNED_TABLES),
    ],
)
def test_a_roformer_continues_with_other_positions(flags, new, toy, trained, tmp_path):
    checkpoint = trained / "checkpoint_last.pt"
    assert carry_over(toy.separate, checkpoint, tmp_path, *flags) == ([], new)


def test_a_training_goes_on_from_the_loss_it_had(toy, stock, tmp_path):
    """The first losses as a sinusoidal model of ours are those of stock, optimiser included."""
    flags = ["--arch", "transformer", *SMALL, *NO_DROPOUT, "--max-epoch", "2"]
    expected = train(toy.separate, tmp_path / "stock", *flags, "--restore-file", stock).losses()
    flags[1] = "posenc_transformer"
    found = train(toy.separate, tmp_path / "ours", *flags, "--restore-file", stock).losses()
    assert len(found) > 2
    assert found == pytest.approx(expected, abs=2e-3)


def test_the_optimizer_of_other_parameters_is_refused(toy, trained, tmp_path):
    """The optimiser counts parameters, and would give the state of one to another."""
    flags = ["--arch", "posenc_transformer", "--position-encoding", "learned", *SMALL]
    start = ["--restore-file", trained / "checkpoint_last.pt", "--max-epoch", "2"]
    message = refusal(toy.separate, tmp_path, *flags, *start)
    assert "decoder.embed_positions.weight" in message and "--finetune-from-model" in message
    sinusoidal = ["--position-encoding", "sinusoidal", *start]  # has none
    log = train(toy.separate, tmp_path, *flags, *sinusoidal)
    assert "warm start: --position-encoding rotary -> sinusoidal" in log.out + log.err
