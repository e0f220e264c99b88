"""--rotary-scaling, and the warning beyond the length of training, through the command lines."""

import re

import pytest
from support.commands import read, refusal, train
from support.masked_lm_runs import CLASSIFY, pretrain
from support.toy_lm import LENGTH, SHAPE, TASK, eval_lm, perplexity, train_lm
from support.warm_starts import FRESH

from fairseq_posenc.models.language_model import MODEL

pytest_plugins = ["support.toy", "support.toy_lm", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys

LONG = ["--tokens-per-sample", "48"]
READ_LONG = {"max_target_positions": 48}


def scaling(rule, **others):
    return {**READ_LONG, "rotary_scaling": rule, "rotary_scaling_factor": 3, **others}


def overrides(settings):
    return ["--model-overrides", str(settings)]


def warnings_in(finished):
    return re.findall(r"longer than the (\d+) tokens of training", finished.out + finished.err)


def test_a_longer_text_is_read_with_one_warning_or_with_scaling(corpus, trained_lm):
    checkpoint = trained_lm("rotary")
    usual = eval_lm(corpus, checkpoint)
    assert warnings_in(usual) == []
    plain = eval_lm(corpus, checkpoint, *LONG, *overrides(READ_LONG))
    assert warnings_in(plain) == ["16"]
    scaled = eval_lm(corpus, checkpoint, *LONG, *overrides(scaling("yarn")))
    assert warnings_in(scaled) == []
    assert 1 < perplexity(scaled) != perplexity(plain) < 1000


def test_scaled_training_on_from_another_length_has_to_name_it(corpus, trained_lm, tmp_path):
    flags = ["--position-encoding", "rotary", "--tokens-per-sample", "32"]
    flags += ["--rotary-scaling", "yarn", "--rotary-scaling-factor", "2"]
    flags += ["--restore-file", trained_lm("rotary"), *FRESH]
    message = refusal(corpus, tmp_path, "--arch", MODEL, *SHAPE, *TASK, *flags)
    assert f"give --rotary-original-length {LENGTH}" in message
    log = train_lm(corpus, tmp_path, MODEL, *flags, "--rotary-original-length", LENGTH)
    assert "warm start: --rotary-scaling none -> yarn" in log.out + log.err
    assert not warnings_in(log)
    kept = read(tmp_path / "checkpoint_last.pt")[1]
    assert (kept["rotary_scaling"], kept["rotary_original_length"]) == ("yarn", LENGTH)


def test_fine_tuning_may_read_longer_inputs(corpora, tmp_path):
    """The scaling is no part of what a checkpoint fixes; the length of training comes from it."""
    short = ["--tokens-per-sample", "12", "--sample-break-mode", "none"]
    pretrain(corpora.text, tmp_path / "pre", "roformer_masked_lm_tiny", *short)
    flags = [*CLASSIFY, "--num-classes", "2", "--max-positions", "24"]
    flags += ["--rotary-scaling", "ntk", "--rotary-scaling-factor", "2"]
    flags += ["--finetune-from-model", tmp_path / "pre" / "checkpoint_last.pt"]
    train(corpora.pairs, tmp_path / "fine", "--arch", "posenc_masked_lm", *flags)
    settings = read(tmp_path / "fine" / "checkpoint_last.pt")[1]
    assert (settings["rotary_original_length"], settings["rotary_scaling"]) == (12, "ntk")
