"""Every named translation architecture through fairseq's command lines, from start to end."""

import shutil

import pytest
from support.commands import SMALL, average, generate, train, validate
from support.helpers import kinds
from support.toy import TEST_SIZES

from fairseq_posenc.models.presets import TRANSLATION as PRESETS
from fairseq_posenc.models.translation import MODEL

pytest_plugins = ["support.toy"]

KINDS = [MODEL, *kinds(PRESETS)]
# fairseq groups sentences into batches once a run, by the epoch in which that run began
SAME_BATCHES = ["--update-epoch-batch-itr", "True"]
# its layer of alignments is the fifth, which the small models have not
OWN_FLAGS = {"roformer_align": ["--alignment-layer", "1"]}


@pytest.mark.parametrize("arch", KINDS)
def test_every_kind_of_architecture_trains_resumes_averages_and_generates(arch, toy, tmp_path):
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    flags = ["--arch", arch, *SMALL, *OWN_FLAGS.get(arch, []), *SAME_BATCHES, "--max-epoch", "2"]
    losses = train(toy.separate, whole, *flags, "--save-interval-updates", "6").losses()
    assert len(losses) == 12  # eight updates; training and validation of two epochs
    rest.mkdir()
    shutil.copy(whole / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")  # within the second
    resumed = train(toy.separate, rest, *flags).losses()
    assert resumed.keys() == {"update 7", "update 8", "train 2", "valid 2"}
    assert resumed.items() <= losses.items()
    checkpoint = average(whole, "--num-epoch-checkpoints", "2")
    assert sorted(generate(toy.separate, checkpoint).hypotheses()) == list(range(24))


@pytest.mark.slow
@pytest.mark.parametrize("arch", [name for name in PRESETS if name not in KINDS])
def test_every_other_architecture_trains(arch, toy, tmp_path):
    assert len(train(toy.separate, tmp_path, "--arch", arch, *SMALL).losses()) == 6


def test_resuming_at_the_end_of_an_epoch(toy, tmp_path):
    flags = ["--arch", "roformer_tiny", *SMALL, *SAME_BATCHES]
    whole = train(toy.separate, tmp_path / "whole", *flags, "--max-epoch", "2").losses()
    in_parts = train(toy.separate, tmp_path / "parts", *flags).losses()
    in_parts.update(train(toy.separate, tmp_path / "parts", *flags, "--max-epoch", "2").losses())
    assert in_parts == whole


def test_resuming_within_the_first_epoch_needs_no_flag(toy, tmp_path):
    flags = ["--arch", "roformer_tiny", *SMALL]
    whole = train(toy.separate, tmp_path / "whole", *flags).losses()
    in_parts = train(toy.separate, tmp_path / "parts", *flags, "--max-update", "2").losses()
    in_parts.update(train(toy.separate, tmp_path / "parts", *flags).losses())
    assert in_parts == whole


@pytest.mark.parametrize("number, size", list(enumerate(TEST_SIZES)))
def test_every_sentence_of_a_test_set_is_translated(number, size, toy, trained):
    subset = f"test{number or ''}"
    checkpoint = trained / "checkpoint_last.pt"
    found = generate(toy.separate, checkpoint, "--gen-subset", subset, "--beam", "1")
    assert sorted(found.hypotheses()) == list(range(size))


def test_every_sentence_is_trained_on_and_validated(toy, tmp_path):
    flags = ["--batch-size", "7", "--required-batch-size-multiple", "8"]
    run = train(toy.separate, tmp_path, "--arch", "roformer_tiny", *SMALL, *flags)
    sentences = sum(float(entry["bsz"]) for entry in run.entries("train_inner"))
    assert sentences == len((toy.text / "train.src").read_text().splitlines())


def test_validating_a_checkpoint_gives_the_loss_that_training_logged(toy, tmp_path):
    logged = train(toy.separate, tmp_path, "--arch", "roformer_tiny", *SMALL).losses()
    found = validate(toy.separate, tmp_path / "checkpoint_last.pt", "--max-tokens", "100")
    (entry,) = found.entries("valid")
    assert float(entry["valid_loss"]) == pytest.approx(logged["valid 1"], abs=2e-3)
