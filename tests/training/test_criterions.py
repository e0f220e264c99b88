"""Scores of --criterion sentence_prediction_metrics: formulas, whole sets, several workers."""

import math
import sys
from argparse import Namespace
from collections import Counter

import numpy as np
import pytest
import torch
from fairseq.logging import metrics
from omegaconf import OmegaConf
from support.commands import TRAINING, USER_DIR, run, shape, succeed, train_together

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.training.sentence_prediction import (
    SCORES,
    SentencePredictionMetricsConfig,
    SentencePredictionMetricsCriterion,
    check,
    percent,
)

pytest_plugins = ["support.toy", "support.masked_lm_runs"]
pytestmark = pytest.mark.formulas

pytest.importorskip("scipy", reason="correlations need scipy")
pytest.importorskip("sklearn", reason="F1 and Matthews correlation need scikit-learn")


def by_hand(name, predictions, targets, positive):
    """A score by its definition, with loops over predictions and targets."""
    pairs = Counter((p == positive, t == positive) for p, t in zip(predictions, targets))
    tp, fp, fn, tn = (
        pairs[key] for key in ((True, True), (True, False), (False, True), (False, False))
    )
    if name == "accuracy":
        return sum(p == t for p, t in zip(predictions, targets)) / len(targets)
    if name == "f1":
        return 2 * tp / (2 * tp + fp + fn)
    if name == "mcc":
        return (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    if name == "spearman":
        predictions, targets = (
            [sum(o < v for o in side) + (1 + sum(o == v for o in side)) / 2 for v in side]
            for side in (predictions, targets)
        )
    x, y = (np.array(side, dtype=float) - np.mean(side) for side in (predictions, targets))
    return (x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum())


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("positive", [0, 1])
def test_scores_are_their_formulas(name, positive):
    draw = np.random.RandomState(3)
    for _ in range(20):
        if SCORES[name].regression:
            targets = draw.randint(0, 26, 60) / 5  # ties, as in STS-B
            predictions = targets + draw.randn(60).round(1)
        else:
            targets = draw.randint(0, 2, 60)
            predictions = np.where(draw.rand(60) < 0.3, 1 - targets, targets)
        expected = 100 * by_hand(name, predictions.tolist(), targets.tolist(), positive)
        assert percent(name, predictions, targets, positive) == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("count", [1, 2, 10])
def test_constant_or_broken_predictions_are_never_nan(name, count):
    targets = np.arange(count, dtype=float) % 2
    for predictions in (np.zeros(count), np.ones(count)):
        for sides in ((predictions, targets), (targets, predictions)):
            assert math.isfinite(percent(name, *sides, 1))
            assert name in ("accuracy", "f1") or percent(name, *sides, 1) == 0
    assert percent(name, np.full(count, np.nan), targets, 1) == 0


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(UsageError, match="--metrics f1: .*pip install scikit-learn"):
        check("f1", False)
    check("accuracy", False)


LABELS = ("entailment", "not_entailment", "1")


def criterion_of(**settings):
    task = Namespace(label_dictionary=Namespace(symbols=[*LABELS], nspecial=0))
    task.cfg, task.target_dictionary = Namespace(num_classes=3), None
    cfg = {"regression_target": False, **settings}
    cfg = OmegaConf.merge(OmegaConf.structured(SentencePredictionMetricsConfig), cfg)
    return SentencePredictionMetricsCriterion(cfg, task)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"metrics": "mcc,pearson"}, "--metrics pearson: is not for .* accuracy, f1, mcc"),
        ({"metrics": "mcc,"}, "--metrics : is unknown"),
        ({"metrics": "F1"}, "--metrics F1: is unknown; .* accuracy, f1, mcc"),
        ({"metrics": "r2", "regression_target": True}, "--metrics r2: is unknown; .* pearson"),
        ({"metrics": "f1", "positive_label": "2"}, "--positive-label 2: .* entailment"),
        ({"metrics": "mcc", "regression_target": True}, "--metrics mcc: .* pearson, spearman"),
    ],
)
def test_mistakes_are_one_line(settings, words):
    with pytest.raises(UsageError, match=words) as error:
        criterion_of(**settings)
    assert "\n" not in str(error.value)


class Answering:
    """A model with a classification head, whose logits are its input."""

    training, classification_heads = False, ["sentence_classification_head"]

    def __call__(self, logits, **unused):
        return logits, {}

    def get_targets(self, sample, outputs):
        return sample["target"]


@pytest.mark.parametrize("regression", [False, True])
def test_scores_are_of_the_whole_set_whatever_the_batches(regression):
    torch.manual_seed(3)
    targets = torch.rand(23) if regression else torch.randint(0, 3, (23,))
    logits = torch.randn(23, 1 if regression else 3)
    names = ["pearson", "spearman"] if regression else ["accuracy", "f1", "mcc"]
    flags = {"metrics": ",".join(names), "regression_target": regression, "positive_label": "1"}
    criterion, answers = criterion_of(**flags), logits[:, 0] if regression else logits.argmax(1)
    want = [percent(name, answers.numpy(), targets.numpy(), 2) for name in names]
    for size in (1, 5, 23):
        with metrics.aggregate(new_root=True) as log:
            for part, target in zip(logits.split(size), targets.split(size)):
                numbers = {"ntokens": len(part), "nsentences": len(part)}
                sample = {"net_input": {"logits": part}, "target": target, **numbers}
                criterion.reduce_metrics([criterion(Answering(), sample)[2]])
        assert [log.get_smoothed_value(name) for name in names] == want


TASK = [
    *("--task", "sentence_prediction", "--arch", "roberta_base", *shape(1, 8, 8, 2, "encoder")),
    *("--max-positions", "32", "--init-token", "0", "--separator-token", "2"),
    *("--criterion", "sentence_prediction_metrics", "--required-batch-size-multiple", "1"),
    *("--num-classes", "2", "--batch-size", "7", "--dropout", "0"),
    *("--attention-dropout", "0"),
]


def scores(finished, *names):
    """The scores after each epoch, in one dictionary per epoch."""
    assert finished.status == 0, finished.err[-2000:]
    return [{n: float(e[f"valid_{n}"]) for n in names} for e in finished.entries("valid")]


def arguments(data, *flags):
    return [data, *USER_DIR, *TRAINING, "--max-epoch", "4", *TASK, *flags]


def test_two_workers_score_what_one_does_and_so_does_validate(corpora, tmp_path):
    data = corpora.pairs
    names = ("accuracy", "f1", "mcc", "loss")
    flags = ["--metrics", "accuracy,f1,mcc", "--positive-label", "long"]
    saved = ["--update-freq", "2", "--save-dir", tmp_path]
    alone = run("train", *arguments(data, *flags, *saved))
    # validation has three batches, so one worker repeats a batch
    group = ["--max-epoch", "4", *TASK, *flags, "--batch-size-valid", "5"]
    first = train_together(data, tmp_path / "two", *group)
    for one, two in zip(scores(alone, *names), scores(first, *names)):
        assert one == pytest.approx(two, abs=2e-3)
    usual = ["--task", "sentence_prediction", "--num-classes", "2", "--criterion"]
    usual += ["sentence_prediction_metrics", *flags, "--init-token", "0", "--cpu"]
    usual += ["--path", tmp_path / "checkpoint_last.pt", "--num-workers", "0", "--batch-size", "5"]
    (entry,) = succeed("validate", data, *USER_DIR, *usual, "--log-format", "json").entries("valid")
    assert {n: float(entry[f"valid_{n}"]) for n in names[:3]} == {
        n: value for n, value in scores(alone, *names)[-1].items() if n != "loss"
    }
