"""Masked language models in fairseq's commands: pre-training, segments and fine-tuning."""

import pytest
import torch
from support.commands import USER_DIR, average, read, refusal, run, succeed, train, validate
from support.masked_lm_runs import CLASSIFY, hydra_settings, pretrain, written
from support.warm_starts import FRESH

from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys


@pytest.fixture(scope="module")
def pretrained(corpora, tmp_path_factory):
    """The checkpoint of a TUPE-R after two epochs; the training was resumed after the first."""
    folder = tmp_path_factory.mktemp("pretrained")
    for epochs in ("1", "2"):
        log = pretrain(corpora.text, folder, "tupe_r_masked_lm_base", "--max-epoch", epochs)
        assert [name for name in log.losses() if "valid" in name] == [f"valid {epochs}"]
    return folder / "checkpoint_last.pt"


def test_the_mean_of_a_pretraining_is_validated(corpora, pretrained):
    mean = average(pretrained.parent, "--num-epoch-checkpoints", "2")
    found = validate(corpora.text, mean, "--task", "masked_lm", "--max-tokens", "160")
    assert 0 < float(found.entries("valid")[0]["valid_loss"]) < 20


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


def test_a_fine_tuned_checkpoint_is_validated_and_resumed_alone(corpora, pretrained, tmp_path):
    flags = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2"]
    train(corpora.pairs, tmp_path, *flags, "--finetune-from-model", pretrained)
    assert "update 1" not in train(corpora.pairs, tmp_path, *flags, "--max-epoch", "2").losses()
    usual = [*CLASSIFY[:4], "--cpu", "--log-format", "json", "--batch-size", "4"]
    path = ["--path", tmp_path / "checkpoint_last.pt", "--num-workers", "0"]
    found = succeed("validate", corpora.pairs, *USER_DIR, *path, *usual)
    assert 0 <= float(found.entries("valid")[0]["valid_accuracy"]) <= 100
    for wrong in ("--num-classes 5", "--classification-head-name other", "--separator-token 3"):
        message = run("validate", corpora.pairs, *USER_DIR, *path, *usual, *wrong.split()).message()
        assert wrong in message and str(path[1]) in message, message


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
    message = refusal(corpora.pairs, tmp_path, "--arch", arch, *usual, *flags)
    assert all(part in message for part in parts), message


def test_hydra_does_not_fine_tune_with_another_encoding(corpora, pretrained, tmp_path):
    settings = hydra_settings(tmp_path, corpora.pairs, {"_name": "roformer_masked_lm_tiny"})
    settings["task"] = {"_name": "sentence_prediction", "data": str(corpora.pairs)}
    settings["task"].update(num_classes=2, init_token=0, max_positions=32)
    settings["criterion"] = {"_name": "sentence_prediction"}
    settings["checkpoint"]["finetune_from_model"] = str(pretrained)
    failed = run("hydra_train", *written(settings, tmp_path))
    assert failed.status != 0
    assert "--position-encoding tupe+t5 -> rotary" in failed.err


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
    assert "--init-token 0" in refusal(data, tmp_path / "out", *ranking)
    train(data, tmp_path / "out", *ranking, "--init-token", "0", "--separator-token", "2")
    _, settings = read(tmp_path / "out" / "checkpoint_last.pt")
    assert settings["position_encoding"] == "tupe+t5"


def test_fine_tuning_may_read_longer_inputs(corpora, tmp_path):
    """Fine-tuning may scale rotary; the original length is taken from the checkpoint."""
    short = ["--tokens-per-sample", "12", "--sample-break-mode", "none"]
    pretrain(corpora.text, tmp_path / "pre", "roformer_masked_lm_tiny", *short)
    flags = [*CLASSIFY, "--num-classes", "2", "--max-positions", "24"]
    flags += ["--rotary-scaling", "ntk", "--rotary-scaling-factor", "2"]
    flags += ["--finetune-from-model", tmp_path / "pre" / "checkpoint_last.pt"]
    train(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *flags)
    settings = read(tmp_path / "fine" / "checkpoint_last.pt")[1]
    assert (settings["rotary_original_length"], settings["rotary_scaling"]) == (12, "ntk")


# --- segments


def second_segment(folder, epoch):
    parameters, _ = read(folder / f"checkpoint{epoch}.pt")
    return parameters["encoder.sentence_encoder.embed_segments.weight"][1]


def test_pairs_train_the_second_segment_and_running_text_says_that_it_does_not(corpora, tmp_path):
    two = ["--position-encoding", "rotary", "--num-segments", "2"]
    log = pretrain(corpora.text, tmp_path / "text", MODEL, *two, "--max-epoch", "5")
    assert (log.out + log.err).count("--num-segments 2: no second text") == 1
    assert torch.equal(*(second_segment(tmp_path / "text", epoch) for epoch in (1, 5)))
    source = ["--finetune-from-model", tmp_path / "text" / "checkpoint_last.pt"]
    flags = [*CLASSIFY, "--num-classes", "2", *source, "--max-epoch", "2"]
    log = train(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *flags)
    assert "--segments single -> pairs" in log.out + log.err
    assert "no second text" not in log.out + log.err
    assert not torch.equal(*(second_segment(tmp_path / "fine", epoch) for epoch in (1, 2)))
    resume = [*CLASSIFY, "--num-classes", "2", "--max-epoch", "3", "--segments", "single"]
    message = refusal(corpora.pairs, tmp_path / "fine", "--arch", MODEL, *resume)
    assert "--segments single" in message and "was trained with pairs" in message


def test_a_translation_model_is_no_pretrained_encoder(corpora, trained, tmp_path):
    source = trained / "checkpoint_last.pt"
    usual = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", "--restore-file", source, *FRESH]
    message = refusal(corpora.pairs, tmp_path, *usual)
    assert "is not a masked language model" in message
