"""Overrides of a trained model's settings: refusals, and warnings about those without effect."""

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.overrides import apply_overrides

pytestmark = pytest.mark.refusals


def classifier(**task):
    """The checkpoint of a sentence classifier with three classes, as fairseq reads it."""
    trained = {"num_classes": 3, "init_token": 0, "separator_token": None}
    named = {"_name": "sentence_prediction", "classification_head_name": "tone"}
    shape = {"max_positions": 9, "dropout": 0.1, "rotary_scaling": "none"}
    groups = {
        "task": {**named, **trained, "regression_target": False, "pairs": "nsp", **task},
        "criterion": named,
        "common": {"seed": 1},
        "model": {"_name": "posenc_masked_lm", "position_encoding": "rotary", **shape},
    }
    head = {"classification_heads.tone.out_proj.weight": torch.zeros(3, 4)}
    return {"cfg": OmegaConf.create(groups), "model": head}


@pytest.mark.parametrize(
    "overrides, words",
    [
        ({"_name": "transformer"}, ["_name='transformer'", "--arch posenc_masked_lm"]),
        ({"model": {"_name": "roberta"}}, ["_name='roberta'"]),
        ({"num_classes": 5}, ["--num-classes 5", "3 classes in its head tone"]),
        (
            {"classification_head_name": "topic"},
            ["--classification-head-name topic", "has the heads tone"],
        ),
        ({"separator_token": 2}, ["--separator-token 2", "trained with none"]),
        ({"init_token": 4}, ["--init-token 4", "trained with 0"]),
        ({"regression_target": True}, ["--regression-target True", "trained with False"]),
        ({"pairs": "sop"}, ["--pairs sop", "trained with nsp"]),
        ({"share_all_embeddings": True}, ["share_all_embeddings: has no effect on posenc_masked"]),
        ({"alibi_slopes": "x"}, ["alibi_slopes: unknown setting"]),
        ({"rotary_factors": "1,2"}, ["rotary_factors='1,2': has no", "--rotary-scaling none"]),
        ({"max_positions": -1}, ["--max-positions -1", "must be at least 1"]),
        ({1: 2}, ["{1: 2}", "must map names of settings"]),
        ({"model": {"model": {"dropout": 0}}}, ["model", "must map names of settings"]),
    ],
    ids=str,
)
def test_what_would_change_a_trained_model_is_refused(overrides, words):
    with pytest.raises(UsageError) as error:
        apply_overrides(classifier(), overrides, "x.pt")
    assert all(word in str(error.value) for word in words), error.value


def test_a_model_of_fairseqs_gets_no_encoding():
    state = {"cfg": OmegaConf.create({"task": {}, "model": {"_name": "transformer"}}), "model": {}}
    for overrides in ({"norm": "rms"}, {"model": {"norm": "rms"}}):
        with pytest.raises(
            UsageError, match="norm='rms': x.pt is not a model of this plug-in.*--fin"
        ):
            apply_overrides(state, overrides, "x.pt")


def test_a_scaling_of_another_encoding_is_refused():
    state = classifier()
    apply_overrides(state, {"rotary_scaling": "yarn", "rotary_scaling_factor": 4.0}, "x.pt")
    assert state["cfg"].model.rotary_scaling == "yarn"
    # the checkpoint is too old to have this setting, so fairseq would skip it silently
    assert state["cfg"].model.rotary_scaling_factor == 4.0
    state["cfg"].model.position_encoding = "alibi"
    with pytest.raises(UsageError, match="='yarn': has no effect with --position-encoding alibi"):
        apply_overrides(state, {"rotary_scaling": "yarn"}, "x.pt")


def test_what_agrees_with_the_training_is_accepted(caplog):
    state = classifier()
    same = {"_name": "posenc_masked_lm", "num_classes": 3, "separator_token": None, "pairs": "none"}
    apply_overrides(state, {**same, "max_positions": 8}, "x.pt")
    assert state["cfg"].model.max_positions == 8 and not caplog.records


@pytest.mark.parametrize("name", ["task", "criterion"])
def test_a_task_that_validation_does_not_use_is_said(name, caplog):
    apply_overrides(classifier(), {name: "masked_lm"}, "x.pt")
    assert f"--{name} masked_lm: has no effect" in caplog.text


def test_what_matters_in_training_only_is_said(caplog):
    apply_overrides(classifier(), {"dropout": 0.5, "init_weights": "truncated_normal"}, "x.pt")
    assert "dropout=0.5: has an effect in training and with --retain-dropout" in caplog.text
    assert "init_weights='truncated_normal': has an effect in training only" in caplog.text


@pytest.mark.parametrize(
    "heads, asked, expected",
    [
        (["tone"], {}, ("tone", 2)),
        (["tone", "sentence_classification_head"], {}, ("sentence_classification_head", 3)),
        (["tone", "topic"], {"classification_head_name": "topic"}, ("topic", 3)),
        (["tone", "topic"], {}, "has the heads tone, topic; give one"),
        ([], {}, "--task sentence_prediction: x.pt has no classification head"),
    ],
)
def test_an_imported_classifier_is_validated_with_the_head_that_it_has(heads, asked, expected):
    state = classifier(_name="masked_lm")
    state["model"] = {
        f"classification_heads.{name}.out_proj.weight": torch.zeros(classes, 4)
        for classes, name in enumerate(heads, 2)
    }
    overrides = {"task": "sentence_prediction", "criterion": "sentence_prediction", **asked}
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            apply_overrides(state, overrides, "x.pt")
        return
    apply_overrides(state, overrides, "x.pt")
    task = state["cfg"].task
    assert (task.classification_head_name, task.num_classes) == expected
    assert state["cfg"].criterion.classification_head_name == expected[0]
