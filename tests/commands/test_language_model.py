"""Language models in fairseq's commands: perplexity, prompts, warm starts, longer texts."""

import math
import re

import pytest
from support.commands import (
    USER_DIR,
    average,
    check_same,
    read,
    refusal,
    succeed,
    validate,
)
from support.toy_lm import BLOCKS, LENGTH, SHAPE, TASK, continued, eval_lm, perplexity, train_lm
from support.warm_starts import FRESH

from fairseq_posenc.models.language_model import MODEL

pytest_plugins = ["support.toy", "support.toy_lm"]
pytestmark = pytest.mark.journeys

PROMPTS = ["a1 a2 a3 a4 a5", "a6", "a7 a8 a9"]


def test_training_resuming_validating_scoring_and_continuing(corpus, tmp_path):
    first = train_lm(corpus, tmp_path, "roformer_lm_tiny").losses()
    second = train_lm(corpus, tmp_path, "roformer_lm_tiny", "--max-epoch", "2").losses()
    assert "valid 1" in first and "valid 2" in second and "update 1" not in second
    checkpoint = average(tmp_path, "--num-epoch-checkpoints", "1")
    found = validate(corpus, checkpoint, *BLOCKS, "--max-tokens", "200").entries("valid")
    assert float(found[0]["valid_loss"]) == pytest.approx(second["valid 2"], abs=2e-3)
    scored = eval_lm(corpus, checkpoint)
    assert perplexity(scored) == pytest.approx(2 ** second["valid 2"], rel=3e-3)
    lines = (corpus / "valid").read_text().splitlines()
    tokens = sum(len(line.split()) + 1 for line in lines)
    assert f"Evaluated {tokens} tokens" in scored.out + scored.err
    alone = continued(corpus, checkpoint, PROMPTS)
    check_same(continued(corpus, checkpoint, PROMPTS, batch=3), alone)
    assert all(alone[n][0][1].startswith(prompt) for n, prompt in enumerate(PROMPTS))


def test_scores_of_a_search_are_those_of_the_whole_text(corpus, trained_lm):
    """A search reads one word at a time, fairseq-eval-lm the whole text at once."""
    (line, *_) = (corpus / "valid").read_text().splitlines()
    length = len(line.split())
    flags = ["--path", trained_lm("learned+t5"), "--cpu", *TASK]
    search = ["--beam", "1", "--max-len-b", length]  # also the length of the prompt
    out = succeed("interactive", corpus, *USER_DIR, *flags, *search, stdin=line + "\n").out
    found = [float(score) for score in re.findall(r"^P-0\t(.*)$", out, re.MULTILINE)[0].split()]
    each = ["--sample-break-mode", "eos", "--output-word-probs"]
    scored = succeed("eval_lm", corpus, *USER_DIR, *flags, *each)
    text = re.escape(line).replace(r"\ ", r" \[\S+\]\t")
    (words,) = set(re.findall(rf"\b({text} \[\S+\])", scored.out + scored.err))
    want = [float(score) / math.log(2) for score in re.findall(r"\[(\S+)\]", words)]
    assert found[:length] == pytest.approx(want, abs=2e-3) and len(want) == length


@pytest.mark.parametrize("encoding", ["learned", "tupe"])
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
    assert "give its --decoder-output-dim 8 --decoder-input-dim 8" in message
    train_lm(corpus, tmp_path / "ours", MODEL, *narrow, *start)


# --- longer texts


LONG = ["--tokens-per-sample", "48"]
READ_LONG = {"max_target_positions": 48}


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
    yarn = {**READ_LONG, "rotary_scaling": "yarn", "rotary_scaling_factor": 3}
    scaled = eval_lm(corpus, checkpoint, *LONG, *overrides(yarn))
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
