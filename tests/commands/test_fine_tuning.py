"""Masked language models through fairseq's command lines: fine-tuning from a checkpoint."""

import pytest
import torch
from support.commands import USER_DIR, read, refusal, run, succeed, train
from support.masked_lm_runs import CLASSIFY, SHAPE, hydra_settings, pretrain, written
from support.warm_starts import FRESH

from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys


@pytest.fixture(scope="module")
def pretrained(corpora, tmp_path_factory):
    """A TUPE-R after two epochs."""
    folder = tmp_path_factory.mktemp("pretrained")
    pretrain(corpora.text, folder, "tupe_r_masked_lm_base", "--max-epoch", "2")
    return folder / "checkpoint_last.pt"


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
    message = refusal(corpora.pairs, tmp_path, "--arch", arch, *usual, *flags)
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
    message = refusal(corpora.pairs, tmp_path, *other)
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


def test_a_translation_model_is_no_pretrained_encoder(corpora, trained, tmp_path):
    source = trained / "checkpoint_last.pt"
    usual = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", "--restore-file", source, *FRESH]
    message = refusal(corpora.pairs, tmp_path, *usual)
    assert "is not a masked language model" in message
