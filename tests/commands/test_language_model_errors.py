"""Language models: settings that a checkpoint cannot serve, and those that it can."""

import pytest
from support.commands import refusal
from support.toy_lm import BLOCKS, LENGTH, SHAPE, eval_lm, perplexity, train_lm

from fairseq_posenc.models.language_model import MODEL

pytest_plugins = ["support.toy", "support.toy_lm"]


def test_evaluation_uses_what_was_trained_and_starts_nothing_untrained(
    corpus, trained_lm, tmp_path
):
    flags = ["--model-overrides", "{'shaw_values': True}"]
    message = eval_lm(corpus, trained_lm("shaw"), *flags).message()
    assert "shaw_values=True" in message and "--finetune-from-model" in message
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
    message = refusal(corpus, tmp_path / "ours", "--arch", MODEL, *SHAPE, *BLOCKS, *start)
    assert "give --decoder-input-dim 8 and --decoder-output-dim 8" in message
    train_lm(corpus, tmp_path / "ours", MODEL, *narrow, *start)
