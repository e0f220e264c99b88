"""--criterion masked_lm_accuracy: fairseq's loss, and the share of correct predictions."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.helpers import PAD, VOCABULARY
from support.masked_language_models import masked_batch, texts, tiny

pytestmark = pytest.mark.formulas

TASK = Namespace(target_dictionary=VOCABULARY)


def criterion(name):
    return CRITERION_REGISTRY[name](Namespace(tpu=False), TASK)


def batch(size, length, share):
    """Sentences with a *share* of tokens to predict; the first sentence is padded."""
    tokens = texts(size, length)
    tokens[0, -3:] = PAD
    asked = (torch.rand(tokens.shape) < share) & tokens.ne(PAD)
    return masked_batch(tokens, asked)


def test_accuracy_is_that_of_all_tokens_to_predict():
    torch.manual_seed(3)
    model = tiny("rotary").eval()
    ours, stock = criterion("masked_lm_accuracy"), criterion("masked_lm")
    right = asked = 0
    ranks = 0.0
    outputs = []
    for sample in (batch(5, 9, 0.5), batch(3, 12, 0.3), batch(2, 7, 1.0)):
        logits = model(**sample["net_input"])[0].detach()
        best = logits.argmax(-1)
        helped = (torch.rand(best.shape) < 0.3) & sample["target"].ne(PAD)
        sample["target"][helped] = best[helped]  # a random model is never correct
        loss, size, output = ours(model, sample)
        expected, expected_size, _ = stock(model, sample)
        assert torch.equal(loss, expected) and size == expected_size
        outputs.append(output)
        for row, target in zip(logits.flatten(0, 1).tolist(), sample["target"].flatten().tolist()):
            order = sorted(range(len(row)), key=lambda symbol: -row[symbol])
            asked += target != PAD
            right += target != PAD and order[0] == target
            ranks += 1 / (order.index(target) + 1) if target != PAD else 0.0
    assert 0 < right < asked
    with metrics.aggregate() as log:
        ours.reduce_metrics(outputs[:1])
        ours.reduce_metrics(outputs[1:])
    assert log.get_smoothed_value("accuracy") == pytest.approx(100 * right / asked, abs=0.005)
    assert 0.1 < ranks / asked < 0.9
    assert log.get_smoothed_value("mrr") == pytest.approx(ranks / asked, abs=5e-5)


def test_the_reciprocal_rank_is_of_evaluation_alone():
    sample = batch(2, 9, 0.5)
    _, _, output = criterion("masked_lm_accuracy")(tiny("rotary").train(), sample)
    assert "reciprocal_ranks" not in output
    with metrics.aggregate() as log:
        criterion("masked_lm_accuracy").reduce_metrics([output])
    assert "mrr" not in log.get_smoothed_values()


@pytest.mark.parametrize("on_a_gpu", [False, True])
def test_a_batch_without_masked_tokens_counts_nothing(on_a_gpu):
    """Without masks, fairseq predicts all tokens (on a GPU, as a flat list); none may be scored."""
    sample, model = batch(2, 9, 0.0), tiny("rotary").eval()
    if on_a_gpu:
        every = torch.ones(2, 9, dtype=torch.bool)
        plain = model.forward
        model.forward = lambda src_tokens, masked_tokens: plain(src_tokens, masked_tokens=every)
        model.get_targets = lambda sample, outputs: sample["target"].flatten()
    loss, size, output = criterion("masked_lm_accuracy")(model, sample)
    assert (loss.item(), size.item(), output["ncorrect"].item()) == (0, 0, 0)
