"""Masked language models through fairseq's command lines: pre-training of every kind, segments."""

import pytest
import torch
from support.commands import USER_DIR, average, read, refusal, succeed, train
from support.helpers import ONE_OF_EACH_PLACE, kinds
from support.masked_lm_runs import CLASSIFY, SHAPE, hydra_settings, pretrain, written
from support.warm_starts import FRESH

from fairseq_posenc.models.masked_lm import MODEL
from fairseq_posenc.models.presets import MASKED_LM as PRESETS

pytest_plugins = ["support.toy", "support.masked_lm_runs"]

KINDS = kinds(PRESETS)
# its windows are a pattern of three
SHAPES = dict.fromkeys(
    ("modernbert_masked_lm_tiny", "modernbert_masked_lm_base"), ["--encoder-layers", "3"]
)


@pytest.mark.parametrize("arch", KINDS)
def test_every_kind_of_architecture_trains_resumes_averages_and_validates(arch, corpora, tmp_path):
    shape = SHAPES.get(arch, [])
    first = pretrain(corpora.text, tmp_path, arch, *shape).losses()
    second = pretrain(corpora.text, tmp_path, arch, *shape, "--max-epoch", "2").losses()
    assert "valid 1" in first and "valid 2" in second and "update 1" not in second
    mean = average(tmp_path, "--num-epoch-checkpoints", "2")
    usual = ["--task", "masked_lm", "--cpu", "--log-format", "json", "--max-tokens", "160"]
    found = succeed(
        "validate", corpora.text, *USER_DIR, "--path", mean, "--num-workers", "0", *usual
    )
    assert 0 < float(found.entries("valid")[0]["valid_loss"]) < 20
    _, settings = read(mean)
    assert settings["position_encoding"] == PRESETS[arch]["position_encoding"]
    assert settings["untie_cls"] == PRESETS[arch].get("untie_cls", False)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [name for name in PRESETS if name not in KINDS])
def test_every_other_architecture_trains(arch, corpora, tmp_path):
    assert "valid 1" in pretrain(corpora.text, tmp_path, arch, *SHAPES.get(arch, [])).losses()


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
@pytest.mark.parametrize("arch", ["roformer_tiny", "t5bias_base"])
def test_encoder_decoders_train_on_denoising(arch, task, corpora, tmp_path):
    flags = ["--arch", arch, *SHAPE, *(f.replace("encoder", "decoder") for f in SHAPE)]
    flags += ["--task", *task.split(), "--tokens-per-sample", "32", "--sample-break-mode"]
    found = train(corpora.text, tmp_path, *flags, "complete", "--criterion", "cross_entropy")
    assert "valid 1" in found.losses()


# every encoding is trained by commands in translation models, and in masked ones in this process
@pytest.mark.parametrize("encoding", ONE_OF_EACH_PLACE)
def test_encodings_are_pretrained_and_fine_tuned(encoding, corpora, tmp_path):
    pretrain(corpora.text, tmp_path / "pre", MODEL, "--position-encoding", encoding)
    source = ["--restore-file", tmp_path / "pre" / "checkpoint_last.pt", *FRESH]
    flags = [*CLASSIFY, "--num-classes", "2", *source]
    losses = train(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *flags).losses()
    assert "valid 1" in losses
    _, settings = read(tmp_path / "fine" / "checkpoint_last.pt")
    assert settings["position_encoding"] == encoding


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
