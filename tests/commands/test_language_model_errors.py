"""Language models: flags that contradict each other, settings that a checkpoint cannot serve."""

import pytest
from support.commands import TRAINING, USER_DIR, run
from support.toy_lm import BLOCKS, LENGTH, SHAPE, eval_lm, perplexity, train_lm

from fairseq_posenc.models.language_model import MODEL

pytest_plugins = ["support.toy", "support.toy_lm"]

CUTOFF = ["--adaptive-softmax-cutoff", "5,8"]
ADAPTIVE = ["--criterion", "adaptive_loss"]


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--self-target"], "--self-target"),
        (["--past-target"], "--past-target"),
        (CUTOFF, "--adaptive-softmax-cutoff 5,8: --criterion cross_entropy does not support it"),
        ([*CUTOFF, *ADAPTIVE], "give --ddp-backend legacy_ddp"),
        ([*ADAPTIVE, "--ddp-backend", "legacy_ddp"], "give --adaptive-softmax-cutoff"),
    ],
)
def test_a_training_that_cannot_work_is_refused(flags, named, corpus, tmp_path):
    usual = ["--save-dir", tmp_path / "run", *TRAINING, "--arch", MODEL, *SHAPE, *BLOCKS]
    assert named in run("train", corpus, *USER_DIR, *usual, *flags).message()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "encoding, overrides, odd, way_out",
    [
        ("shaw", {"shaw_values": True}, "shaw_values=True", "--finetune-from-model"),
        ("rotary", {"attention": "favor"}, "attention='favor'", "--attention favor"),
    ],
)
def test_evaluation_starts_nothing_untrained(encoding, overrides, odd, way_out, corpus, trained_lm):
    flags = ["--model-overrides", str(overrides)]
    message = eval_lm(corpus, trained_lm(encoding), *flags).message()
    assert odd in message and way_out in message


def test_evaluation_uses_all_that_was_trained(corpus, tmp_path):
    train_lm(corpus, tmp_path, MODEL, "--position-encoding", "shaw", "--shaw-values")
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert perplexity(eval_lm(corpus, checkpoint)) < 1000
    flags = ["--model-overrides", "{'shaw_values': False}"]
    message = eval_lm(corpus, checkpoint, *flags).message()
    assert "shaw_values=False" in message and "was trained with True" in message


@pytest.mark.parametrize("encoding", ["learned", "tupe", "rotary"])
def test_a_token_before_every_block_has_a_position(encoding, corpus, tmp_path):
    flags = ["--position-encoding", encoding, "--add-bos-token"]
    train_lm(corpus, tmp_path, MODEL, *flags)
    bos = ["--add-bos-token", "--tokens-per-sample", LENGTH]
    assert perplexity(eval_lm(corpus, tmp_path / "checkpoint_last.pt", *bos)) < 1000


def test_narrow_embeddings_of_stock_are_named(corpus, tmp_path):
    narrow = ["--decoder-input-dim", "8", "--decoder-output-dim", "8"]
    train_lm(corpus, tmp_path, "transformer_lm", *narrow)
    start = ["--finetune-from-model", tmp_path / "checkpoint_last.pt"]
    usual = ["--save-dir", tmp_path / "ours", *TRAINING, "--arch", MODEL, *SHAPE, *BLOCKS]
    message = run("train", corpus, *USER_DIR, *usual, *start).message()
    assert "give --decoder-input-dim 8 and --decoder-output-dim 8" in message
    train_lm(corpus, tmp_path / "ours", MODEL, *narrow, *start)
