"""Language-model recipe: the whole chain on made-up texts, resumed, and its settings."""

import re

import pytest
from support.commands import shape
from support.language_models import PREPARE, TRAIN, wikitext
from support.recipes import bash, check_flags, flags_of, stub_arguments, succeed

from fairseq_posenc.models.presets import LANGUAGE_MODEL as PRESETS

TINY = [*shape(1, 16, 16, 2, "decoder"), "--num-workers", "0", "--lr", "0.01"]
SMALL = ["--cpu", "--tokens-per-sample", "16", "--update-freq", "1"]
ADAPTIVE = (
    "--criterion adaptive_loss --ddp-backend legacy_ddp --adaptive-input "
    "--adaptive-input-cutoff 4,6 --adaptive-softmax-cutoff 4,6 --tie-adaptive-weights "
    "--tie-adaptive-proj --decoder-input-dim 16 --decoder-output-dim 16"
).split()


def test_words_are_prepared_trained_on_and_trained_further(tmp_path):
    wikitext(tmp_path / "wikitext")
    succeed(PREPARE, "wikitext", "wikitext", "out", cwd=tmp_path)
    words = ["rotary", "out/data-bin", "run", *SMALL, *TINY, *ADAPTIVE, "--arch", "gau_lm_small"]
    for updates in ("3", "6"):
        done = succeed(TRAIN, *words, cwd=tmp_path, PRECISION="", UPDATES=updates)
    assert "Loaded checkpoint run/checkpoint_last.pt" in done.stdout + done.stderr
    log = (tmp_path / "run" / "train.log").read_text()
    assert "AdaptiveSoftmax" in log and log.count("done training") == 2
    losses = [float(loss) for loss in re.findall(r"valid on .* \| loss ([\d.]+)", log)]
    assert losses[-1] < losses[0] and log.count("num_updates 6") >= 1


def test_training_is_that_of_gpt3(tmp_path):
    (words,) = stub_arguments(TRAIN, "rotary", "data", "run", "--lr", "1", cwd=tmp_path)
    check_flags(
        flags_of(words),
        "--arch roformer_lm_small --position-encoding rotary --task language_modeling "
        "--tokens-per-sample 2048 --sample-break-mode none --criterion cross_entropy "
        "--max-update 55000 --warmup-updates 550 --lr 1 --min-lr 6e-5 --lr-scheduler cosine "
        "--weight-decay 0.1 --clip-norm 1.0 --dropout 0 --keep-interval-updates-pattern 5500 "
        "--batch-size 8 --update-freq 4 --save-dir run",
    )
    assert 8 * 8 * 4 * 2048 == 1 << 19  # tokens of an update on 8 GPUs


def test_every_encoding_is_the_preset_of_its_name():
    small = PRESETS["roformer_lm_small"]
    named = {"learned": "learned", "t5": "t5bias", "alibi": "alibi", "shaw": "shaw"}
    for encoding, name in {**named, "transformer_xl": "transformer_xl"}.items():
        assert PRESETS[f"{name}_lm_small"] == {**small, "position_encoding": encoding}


@pytest.mark.parametrize(
    "words, message",
    [
        (["words", "text", "out"], "words: expected wikitext"),
        (["wikitext", "text", "out"], "text: has no texts train and valid"),
        (["text8", "text", "out"], "text: no such file; give the file text8"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path):
    refused = bash(PREPARE, *words, cwd=tmp_path)
    assert refused.returncode == 1 and message in refused.stderr.strip().split("\n")[-1]
    assert not list(tmp_path.iterdir())
