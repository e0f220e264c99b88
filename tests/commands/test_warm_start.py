"""A training goes on with another position encoding, through fairseq's command lines."""

import re

import pytest
import torch
from support.commands import NO_DROPOUT, SMALL, TRAINING, USER_DIR, generate, read, run, train

pytest_plugins = ["support.toy"]

LEARNED_TABLES = ["encoder.embed_positions.weight", "decoder.embed_positions.weight"]
LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos"]
ROFORMER = ["--arch", "roformer_tiny"]
RESET = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


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
    """Train on from *checkpoint* with a learning rate of zero: what it starts from is saved.

    Returns:
        what the log lists as left out and as new, and the parameters before and after.
    """
    start = [by, checkpoint, *(RESET if by == "--restore-file" else [])]
    log = train(data, folder, *SMALL, *flags, *start, "--lr", "0", "--max-update", "1")
    check_taken(log, read(checkpoint)[0], read(folder / "checkpoint_last.pt")[0])
    left_out = re.findall(r"warm start: left out (\S+)", log.out + log.err)
    new = re.findall(r"warm start: (\S+) \(.*\) starts untrained", log.out + log.err)
    return left_out, new, read(checkpoint)[0], read(folder / "checkpoint_last.pt")[0]


def check_taken(run, before, after):
    """What is taken is listed by name, layers together."""
    listed = re.findall(r"warm start: took (\d+) tensors from \S+: (.*)", run.out + run.err)
    common = set(before) & set(after)
    if listed:  # and not with a model of fairseq's
        ((number, names),) = listed
        kinds = {re.sub(r"\.layers\.\d+\.", ".layers.*.", key) for key in common}
        assert int(number) == len(common)
        assert {re.sub(r" \(\d+\)$", "", name) for name in names.split(", ")} == kinds


def check_carried_over(before, after, left_out=(), new=()):
    assert set(before) - set(left_out) == set(after) - set(new)
    for key in set(before) & set(after):
        assert torch.equal(before[key], after[key]), key


@pytest.mark.parametrize("by", ["--restore-file", "--finetune-from-model"])
def test_stock_continues_as_a_roformer(by, toy, stock, tmp_path):
    left_out, new, before, after = carry_over(toy.separate, stock, tmp_path, *ROFORMER, by=by)
    assert (left_out, new) == ([], [])  # sinusoidal positions are no parameters
    check_carried_over(before, after)


@pytest.mark.parametrize("by", ["--restore-file", "--finetune-from-model"])
def test_tables_of_stock_that_a_roformer_has_no_use_for_are_listed(
    by, toy, stock_learned, tmp_path
):
    carried = carry_over(toy.separate, stock_learned, tmp_path, *ROFORMER, by=by)
    left_out, new, before, after = carried
    assert (sorted(left_out), new) == (sorted(LEARNED_TABLES), [])
    check_carried_over(before, after, left_out=LEARNED_TABLES)


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
    left_out, listed, before, after = carry_over(toy.separate, checkpoint, tmp_path, *flags)
    assert (left_out, sorted(listed)) == ([], sorted(new))
    check_carried_over(before, after, new=new)


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned"])
def test_a_stock_model_of_ours_translates_as_stock_does(
    encoding, toy, stock, stock_learned, tmp_path
):
    source = {"sinusoidal": stock, "learned": stock_learned}[encoding]
    ours = ["--arch", "posenc_transformer", "--position-encoding", encoding]
    carried = carry_over(toy.separate, source, tmp_path, *ours)
    assert carried[:2] == ([], [])
    search = ["--beam", "4", "--nbest", "2", "--print-alignment"]
    expected = generate(toy.separate, source, *search)
    found = generate(toy.separate, tmp_path / "checkpoint_last.pt", *search)
    assert found.hypotheses().keys() == expected.hypotheses().keys()
    for number, hypotheses in expected.hypotheses().items():
        for (score, text), (other, same) in zip(hypotheses, found.hypotheses()[number]):
            assert text == same
            assert score == pytest.approx(other, abs=1e-4)
    alignments = re.findall(r"^A-.*$", expected.out, re.MULTILINE)
    assert alignments == re.findall(r"^A-.*$", found.out, re.MULTILINE)


def test_a_training_goes_on_from_the_loss_it_had(toy, stock, tmp_path):
    """The first losses as a sinusoidal model of ours are those of stock, optimiser included."""
    flags = ["--arch", "transformer", *SMALL, *NO_DROPOUT, "--max-epoch", "2"]
    expected = train(toy.separate, tmp_path / "stock", *flags, "--restore-file", stock).losses()
    flags[1] = "posenc_transformer"
    found = train(toy.separate, tmp_path / "ours", *flags, "--restore-file", stock).losses()
    assert len(found) > 2
    assert found == pytest.approx(expected, abs=2e-3)


def test_the_optimizer_of_other_parameters_is_refused(toy, trained, tmp_path):
    """It counts parameters, and would give the state of one to another."""
    flags = ["--arch", "posenc_transformer", "--position-encoding", "learned", *SMALL]
    start = ["--restore-file", trained / "checkpoint_last.pt", "--max-epoch", "2"]
    arguments = [*USER_DIR, "--save-dir", tmp_path, *TRAINING, *flags, *start]
    message = run("train", toy.separate, *arguments).message()
    assert "decoder.embed_positions.weight" in message and "--finetune-from-model" in message
    sinusoidal = ["--position-encoding", "sinusoidal", *start]  # has none
    log = train(toy.separate, tmp_path, *flags, *sinusoidal)
    assert "warm start: --position-encoding rotary -> sinusoidal" in log.out + log.err
