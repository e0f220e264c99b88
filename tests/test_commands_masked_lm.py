"""Masked language models through fairseq's command lines: pre-training, fine-tuning, fill-mask."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from commands import TRAINING, USER_DIR, average, read, run, succeed
from helpers import ONE_OF_EACH_PLACE, kinds

from fairseq_posenc.models.masked_lm import MODEL
from fairseq_posenc.models.masked_lm_presets import PRESETS

pytest_plugins = ["toy"]

SHAPE = [
    *("--encoder-layers", "2", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24"),
    *("--encoder-attention-heads", "2"),
]
MASKED = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "32"]
MASKED += ["--sample-break-mode", "complete"]
CLASSIFY = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
CLASSIFY += ["--init-token", "0", "--separator-token", "2"]
FRESH = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


@dataclass(frozen=True)
class Corpora:
    """Folders for fairseq-train: plain text, labelled pairs, and pairs with a number each."""

    text: Path
    pairs: Path
    numbers: Path


@pytest.fixture(scope="module")
def corpora(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    made = Corpora(folder / "text", folder / "pairs", folder / "numbers")
    lines = {n: (toy.text / f"{n}.src").read_text().splitlines() for n in ("train", "valid")}

    def binarise(destination, *flags):
        parts = [f for n in lines for f in (f"--{n}pref", folder / n)]
        succeed("preprocess", "--only-source", *parts, "--destdir", destination, *flags)

    def write(make):
        for name, sentences in lines.items():
            (folder / name).write_text("\n".join(map(make, sentences)) + "\n")

    write(str)
    binarise(made.text)
    for data in (made.pairs, made.numbers):
        for number, make in enumerate((str, lambda s: " ".join(reversed(s.split())))):
            write(make)
            binarise(data / f"input{number}", "--srcdict", made.text / "dict.txt")
    write(lambda s: "long" if len(s.split()) > 5 else "short")
    binarise(made.pairs / "label")
    (made.numbers / "label").mkdir()
    for name, sentences in lines.items():
        numbers = "".join(f"{len(s.split())}\n" for s in sentences)
        (made.numbers / "label" / f"{name}.label").write_text(numbers)
    return made


def train(data, folder, *flags):
    return succeed("train", data, *USER_DIR, "--save-dir", folder, *TRAINING, *flags)


def pretrain(data, folder, arch, *flags):
    return train(data, folder, "--arch", arch, *SHAPE, *MASKED, *flags)


@pytest.fixture(scope="module")
def pretrained(corpora, tmp_path_factory):
    """A TUPE-R after two epochs."""
    folder = tmp_path_factory.mktemp("pretrained")
    pretrain(corpora.text, folder, "tupe_r_masked_lm_base", "--max-epoch", "2")
    return folder / "checkpoint_last.pt"


KINDS = kinds(PRESETS)


@pytest.mark.parametrize("arch", KINDS)
def test_every_kind_of_architecture_trains_resumes_averages_and_validates(arch, corpora, tmp_path):
    first = pretrain(corpora.text, tmp_path, arch).losses()
    second = pretrain(corpora.text, tmp_path, arch, "--max-epoch", "2").losses()
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
    assert "valid 1" in pretrain(corpora.text, tmp_path, arch).losses()


def test_electra_pretrains_resumes_and_is_fine_tuned(corpora, tmp_path):
    flags = ["--arch", "roformer_electra_tiny", *SHAPE, "--generator-size", "0.5", *MASKED]
    flags += ["--criterion", "replaced_token_detection"]
    pre, fine = tmp_path / "pre", tmp_path / "fine"
    found = train(corpora.text, pre, *flags)
    logged = found.entries("valid")[0]
    assert 0 < float(logged["valid_generator_loss"]) < 20
    assert 0 <= float(logged["valid_recall"]) <= 100
    assert "update 1" not in train(corpora.text, pre, *flags, "--max-epoch", "2").losses()
    source = ["--restore-file", pre / "checkpoint_last.pt", *FRESH]
    classify = ["--arch", "posenc_masked_lm", *CLASSIFY, "--num-classes", "2"]
    train(corpora.pairs, fine, *classify, "--max-positions", "32", "--max-update", "0", *source)
    (before, _), (after, settings) = (read(f / "checkpoint_last.pt") for f in (pre, fine))
    assert settings["position_encoding"] == "rotary" and "generator_size" not in settings
    assert not any(key.startswith("generator") for key in after)
    assert any(key.startswith("generator") for key in before)


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


def test_a_funnel_encoder_is_pretrained_and_fine_tuned(corpora, tmp_path):
    """A preset's number of layers gives way to that of the stages."""
    flags = ["--arch", "transformer_xl_masked_lm_base", "--funnel-stages", "1,1,1"]
    train(corpora.text, tmp_path / "pre", *flags, *SHAPE[2:], *MASKED)
    source = ["--finetune-from-model", tmp_path / "pre" / "checkpoint_last.pt"]
    flags = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", *source]
    assert "valid 1" in train(corpora.pairs, tmp_path / "fine", *flags).losses()
    after, settings = read(tmp_path / "fine" / "checkpoint_last.pt")
    assert (settings["funnel_stages"], settings["encoder_layers"]) == ("1,1,1", 5)
    before, _ = read(tmp_path / "pre" / "checkpoint_last.pt")
    weights = [f"encoder.sentence_encoder.layers.{i}.fc1.weight" for i in range(5)]
    same = [torch.equal(before[name], after[name]) for name in weights]
    assert same == [False, False, False, True, True]  # the decoder is not used


def test_checkpointed_activations_change_no_loss(corpora, tmp_path):
    runs = [
        pretrain(corpora.text, tmp_path / str(len(flags)), "tupe_r_masked_lm_base", *flags).losses()
        for flags in ([], ["--checkpoint-activations"])
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("how", ["--restore-file", "--finetune-from-model"])
def test_fine_tuning_takes_shape_encoding_and_weights_from_the_checkpoint(
    how, corpora, pretrained, tmp_path
):
    reset = FRESH if how == "--restore-file" else []
    flags = [*CLASSIFY, "--num-classes", "2", how, pretrained, *reset, "--lr", "0"]
    train(corpora.pairs, tmp_path, "--arch", MODEL, *flags)
    before, _ = read(pretrained)
    after, settings = read(tmp_path / "checkpoint_last.pt")
    assert (settings["position_encoding"], settings["untie_cls"]) == ("tupe+t5", True)
    assert (settings["encoder_layers"], settings["num_positions"]) == (2, 32)
    assert before.keys() < after.keys()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    new = {key.split(".")[0] for key in after.keys() - before.keys()}
    assert new == {"classification_heads"}


def test_regression_is_fine_tuned_and_validated(corpora, pretrained, tmp_path):
    flags = [*CLASSIFY, "--num-classes", "1", "--regression-target", "--best-checkpoint-metric"]
    flags += ["loss", "--restore-file", pretrained, *FRESH, "--max-epoch", "3"]
    found = train(corpora.numbers, tmp_path, "--arch", MODEL, *flags).entries("valid")
    assert float(found[2]["valid_loss"]) < float(found[0]["valid_loss"])


def test_a_fine_tuned_checkpoint_is_validated_and_resumed_alone(corpora, pretrained, tmp_path):
    flags = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2"]
    train(corpora.pairs, tmp_path, *flags, "--finetune-from-model", pretrained)
    more = [*flags, "--finetune-from-model", pretrained, "--max-epoch", "2"]
    assert "update 1" not in train(corpora.pairs, tmp_path, *more).losses()
    usual = [*CLASSIFY[:4], "--cpu", "--log-format", "json", "--batch-size", "4"]
    path = ["--path", tmp_path / "checkpoint_last.pt", "--num-workers", "0"]
    found = succeed("validate", corpora.pairs, *USER_DIR, *path, *usual)
    assert 0 <= float(found.entries("valid")[0]["valid_accuracy"]) <= 100


def test_stock_roberta_is_fine_tuned_as_bert_a(corpora, tmp_path):
    pretrain(corpora.text, tmp_path / "stock", "roberta_base")
    source = ["--restore-file", tmp_path / "stock" / "checkpoint_last.pt", *FRESH]
    flags = [*CLASSIFY, "--num-classes", "2", *source]
    train(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *flags)
    _, settings = read(tmp_path / "fine" / "checkpoint_last.pt")
    assert settings["position_encoding"] == "learned" and settings["encoder_layers"] == 2


@pytest.mark.parametrize(
    "arch, flags, parts",
    [
        (MODEL, ["--position-encoding", "rotary"], ["--position-encoding rotary", "tupe+t5"]),
        (MODEL, ["--t5-num-buckets", "16"], ["--t5-num-buckets 16", "32"]),
        (MODEL, ["--encoder-layers", "3"], ["--encoder-layers 3", "with 2"]),
        (MODEL, ["--max-positions", "512"], ["--max-positions 512", "32 positions"]),
        (MODEL, ["--num-positions", "64"], ["--num-positions 64", "has 32"]),
        ("roformer_masked_lm_base", [], ["rotary", "tupe+t5", f"--arch {MODEL}"]),
        ("tupe_r_masked_lm_base", [], ["--encoder-layers 12", "has 2", f"--arch {MODEL}"]),
        ("tupe_a_tie_cls_masked_lm_base", ["--position-encoding", "tupe+t5"], ["--untie-cls"]),
        ("roformer_tiny", [], ["--arch roformer_tiny", "--arch roformer_masked_lm_base"]),
    ],
)
def test_what_contradicts_the_checkpoint_stops(arch, flags, parts, corpora, pretrained, tmp_path):
    usual = [*CLASSIFY, "--num-classes", "2", "--restore-file", pretrained, *FRESH]
    arguments = [*USER_DIR, "--save-dir", tmp_path, *TRAINING, "--arch", arch, *usual, *flags]
    message = run("train", corpora.pairs, *arguments).message()
    assert all(part in message for part in parts), message


def test_a_flag_that_agrees_with_the_checkpoint_wins_over_the_preset(corpora, pretrained, tmp_path):
    flags = [*CLASSIFY, "--num-classes", "2", "--finetune-from-model", pretrained, *SHAPE]
    train(corpora.pairs, tmp_path, "--arch", "tupe_r_masked_lm_base", *flags)


@pytest.fixture(scope="module")
def alibi(corpora, tmp_path_factory):
    """A model whose encoding has no parameters, after one epoch."""
    folder = tmp_path_factory.mktemp("alibi")
    pretrain(corpora.text, folder, MODEL, "--position-encoding", "alibi")
    return folder / "checkpoint_last.pt"


def test_an_encoding_without_parameters_is_kept_when_fine_tuning_resumes(corpora, alibi, tmp_path):
    flags = [*CLASSIFY, "--num-classes", "2"]
    train(corpora.pairs, tmp_path, "--arch", MODEL, *flags, "--finetune-from-model", alibi)
    train(corpora.pairs, tmp_path, "--arch", MODEL, *flags, "--max-epoch", "2")
    _, settings = read(tmp_path / "checkpoint_last.pt")
    assert settings["position_encoding"] == "alibi"
    other = ["--arch", "roformer_masked_lm_tiny", *SHAPE, *flags, "--max-epoch", "3"]
    arguments = [*USER_DIR, "--save-dir", tmp_path, *TRAINING, *other]
    message = run("train", corpora.pairs, *arguments).message()
    assert "rotary" in message and "alibi" in message


def test_pre_training_that_changes_the_encoding_says_so(corpora, alibi, tmp_path):
    flags = ["--position-encoding", "rotary", "--restore-file", alibi, *FRESH]
    log = pretrain(corpora.text, tmp_path, MODEL, *flags)
    assert "warm start: --position-encoding alibi -> rotary" in log.out + log.err


def test_hydra_does_not_fine_tune_with_another_encoding(corpora, alibi, tmp_path):
    settings = hydra_settings(tmp_path, corpora.pairs, {"_name": "roformer_masked_lm_tiny"})
    settings["task"] = {"_name": "sentence_prediction", "data": str(corpora.pairs)}
    settings["task"].update(num_classes=2, init_token=0, max_positions=32)
    settings["criterion"] = {"_name": "sentence_prediction"}
    settings["checkpoint"]["finetune_from_model"] = str(alibi)
    failed = run("hydra_train", *written(settings, tmp_path))
    assert failed.status != 0
    assert "--position-encoding alibi -> rotary" in failed.err


def test_a_classifier_needs_a_criterion_for_classes(corpora, tmp_path):
    flags = ["--arch", MODEL, "--task", "sentence_prediction", "--init-token", "0"]
    message = run("train", corpora.pairs, *USER_DIR, "--save-dir", tmp_path, *flags).message()
    assert "--criterion cross_entropy: " in message and "give --criterion sentence" in message


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
    arguments = [*USER_DIR, "--save-dir", tmp_path / "fine", *TRAINING, "--arch", MODEL, *resume]
    message = run("train", corpora.pairs, *arguments).message()
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


def test_ranking_needs_cls_and_takes_the_encoding(corpora, pretrained, tmp_path):
    data = tmp_path / "data"
    (data / "label").mkdir(parents=True)
    for number in (0, 1):
        (data / f"input{number + 1}").symlink_to(corpora.pairs / f"input{number}")
    (data / "input0").symlink_to(corpora.pairs / "input0")
    for name in ("train", "valid"):
        source = (corpora.numbers / "label" / f"{name}.label").read_text().splitlines()
        answers = "".join(f"{int(line) % 2}\n" for line in source)
        (data / "label" / f"{name}.label").write_text(answers)
    ranking = ["--task", "sentence_ranking", "--criterion", "sentence_ranking", "--num-classes"]
    ranking += ["2", "--finetune-from-model", pretrained, "--arch", MODEL]
    arguments = [*USER_DIR, "--save-dir", tmp_path / "out", *TRAINING, *ranking]
    assert "--init-token 0" in run("train", data, *arguments).message()
    train(data, tmp_path / "out", *ranking, "--init-token", "0", "--separator-token", "2")
    _, settings = read(tmp_path / "out" / "checkpoint_last.pt")
    assert settings["position_encoding"] == "tupe+t5"


@pytest.mark.parametrize("how", ["--restore-file", "--finetune-from-model"])
def test_a_missing_pretrained_model_stops(how, corpora, tmp_path):
    missing = tmp_path / "nowhere" / "model.pt"
    usual = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", how, missing]
    arguments = [*USER_DIR, "--save-dir", tmp_path, *TRAINING, *usual]
    message = run("train", corpora.pairs, *arguments).message()
    assert f"{how} {missing}: no such file" in message


def test_a_translation_model_is_no_pretrained_encoder(corpora, trained, tmp_path):
    source = trained / "checkpoint_last.pt"
    usual = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", "--restore-file", source, *FRESH]
    arguments = [*USER_DIR, "--save-dir", tmp_path, *TRAINING, *usual]
    message = run("train", corpora.pairs, *arguments).message()
    assert "is not a masked language model" in message


def hydra_settings(folder, data, model):
    """A configuration for fairseq-hydra-train."""
    shape = {flag[2:].replace("-", "_"): int(n) for flag, n in zip(SHAPE[::2], SHAPE[1::2])}
    return {
        "common": {"cpu": True, "user_dir": USER_DIR[1], "seed": 1},
        "checkpoint": {"save_dir": str(folder / "checkpoints")},
        "task": {"_name": "masked_lm", "data": str(data), "tokens_per_sample": 32},
        "criterion": {"_name": "masked_lm"},
        "dataset": {"max_tokens": 160, "num_workers": 0},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"lr": [0.01], "max_epoch": 1},
        "model": {**model, **shape},
    }


def written(settings, folder):
    """The arguments that name *settings*, written down in *folder*."""
    (folder / "here.yaml").write_text("# @package _global_\n" + json.dumps(settings))
    return ["--config-dir", folder, "--config-name", "here", f"hydra.run.dir={folder}"]


def test_hydra_keeps_the_defaults_of_an_architecture(corpora, tmp_path):
    settings = hydra_settings(tmp_path, corpora.text, {"_name": "tupe_a_masked_lm_base"})
    succeed("hydra_train", *written(settings, tmp_path))
    parameters, saved = read(tmp_path / "checkpoints" / "checkpoint_last.pt")
    assert "encoder.sentence_encoder.position_bias.tupe.cls.weight" in parameters
    assert saved["untie_cls"] and saved["encoder_layers"] == 2 and saved["max_positions"] == 32


def test_the_hub_interface_fills_masks(corpora, pretrained):
    from fairseq_posenc.models.masked_lm import MaskedLMModel

    hub = MaskedLMModel.from_pretrained(
        str(pretrained.parent), pretrained.name, str(corpora.text), bpe=None
    )
    hub.bpe = type("Words", (), {"encode": staticmethod(str), "decode": staticmethod(str)})
    hub.eval()
    filled = hub.fill_mask("a1 a2 <mask> a4", topk=3)
    assert filled and all(0 < probability < 1 for _, probability, _ in filled)
    assert all(text == f"a1 a2{word} a4" for text, _, word in filled)
    assert hub.extract_features(hub.encode("a1 a2", "a3")).shape == (1, 7, 16)
