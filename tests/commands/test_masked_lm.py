"""Masked language models through fairseq's command lines: pre-training, segments."""

import pytest
import torch
from support.commands import average, read, refusal, succeed, train, validate
from support.masked_lm_runs import CLASSIFY, SHAPE, hydra_settings, pretrain, written

from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys


def test_training_resuming_averaging_and_validating(corpora, tmp_path):
    arch = "tupe_r_masked_lm_base"
    first = pretrain(corpora.text, tmp_path, arch).losses()
    second = pretrain(corpora.text, tmp_path, arch, "--max-epoch", "2").losses()
    assert "valid 1" in first and "valid 2" in second and "update 1" not in second
    mean = average(tmp_path, "--num-epoch-checkpoints", "2")
    found = validate(corpora.text, mean, "--task", "masked_lm", "--max-tokens", "160")
    assert 0 < float(found.entries("valid")[0]["valid_loss"]) < 20


@pytest.mark.parametrize(
    "task",
    [
        # BART section 2.2: text infilling and sentence permutation
        "denoising --mask 0.3 --mask-length span-poisson --poisson-lambda 3 --replace-length 1 "
        "--permute-sentences 1",
        # T5 section 3.1.4: spans replaced by sentinels
        "span_masked_lm --noise-density 0.15 --mean-noise-span-length 3",
    ],
)
def test_encoder_decoders_train_on_denoising(task, corpora, tmp_path):
    flags = ["--arch", "t5bias_base", *SHAPE, *(f.replace("encoder", "decoder") for f in SHAPE)]
    flags += ["--task", *task.split(), "--tokens-per-sample", "32", "--sample-break-mode"]
    found = train(corpora.text, tmp_path, *flags, "complete", "--criterion", "cross_entropy")
    assert "valid 1" in found.losses()


def test_checkpointed_activations_change_no_loss(corpora, tmp_path):
    runs = [
        pretrain(corpora.text, tmp_path / str(len(flags)), "tupe_r_masked_lm_base", *flags).losses()
        for flags in ([], ["--checkpoint-activations"])
    ]
    assert runs[0] == runs[1]


def second_segment(folder, epoch):
    """The embedding of the second text after an epoch."""
    return read(folder / f"checkpoint{epoch}.pt")[0][
        "encoder.sentence_encoder.embed_segments.weight"
    ][1]


def test_pairs_train_the_second_segment_and_running_text_says_that_it_does_not(corpora, tmp_path):
    two = ["--position-encoding", "rotary", "--num-segments", "2"]
    log = pretrain(corpora.text, tmp_path / "text", MODEL, *two, "--max-epoch", "5")
    assert (log.out + log.err).count("--num-segments 2: no second text") == 1
    assert torch.equal(second_segment(tmp_path / "text", 1), second_segment(tmp_path / "text", 5))
    source = ["--finetune-from-model", tmp_path / "text" / "checkpoint_last.pt"]
    flags = [*CLASSIFY, "--num-classes", "2", *source, "--max-epoch", "2"]
    log = train(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *flags)
    assert "--segments single -> pairs" in log.out + log.err
    assert "no second text" not in log.out + log.err
    assert not torch.equal(
        second_segment(tmp_path / "fine", 1), second_segment(tmp_path / "fine", 2)
    )
    resume = [*CLASSIFY, "--num-classes", "2", "--max-epoch", "3", "--segments", "single"]
    message = refusal(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *resume)
    assert "--segments single" in message and "was trained with pairs" in message


def test_lines_of_pairs_train_the_second_segment(toy, tmp_path):
    for name in ("train", "valid"):
        lines = (toy.text / f"{name}.src").read_text().splitlines()
        pairs = (f"{first} </s> {second}\n" for first, second in zip(lines[::2], lines[1::2]))
        (tmp_path / name).write_text("".join(pairs))
    text = ["--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid"]
    succeed("preprocess", "--only-source", *text, "--destdir", tmp_path / "data")
    two = ["--position-encoding", "rotary", "--num-segments", "2", "--sample-break-mode", "eos"]
    pretrain(tmp_path / "data", tmp_path / "out", MODEL, *two, "--max-epoch", "2")
    assert read(tmp_path / "out" / "checkpoint_last.pt")[1]["segments"] == "pairs"
    assert not torch.equal(second_segment(tmp_path / "out", 1), second_segment(tmp_path / "out", 2))


def test_hydra_keeps_the_defaults_of_an_architecture(corpora, tmp_path):
    settings = hydra_settings(tmp_path, corpora.text, {"_name": "tupe_a_masked_lm_base"})
    succeed("hydra_train", *written(settings, tmp_path))
    parameters, saved = read(tmp_path / "checkpoints" / "checkpoint_last.pt")
    assert "encoder.sentence_encoder.position_bias.tupe.cls.weight" in parameters
    assert saved["untie_cls"] and saved["encoder_layers"] == 2 and saved["max_positions"] == 32
