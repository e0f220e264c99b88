"""The span boundary objective of SpanBERT: its loss and its head."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.masked_language_models import masked_batch, tiny

from fairseq_posenc.packs.pretraining import heads

CLS, PAD, END = 0, 1, 2


def spanned():
    torch.manual_seed(1)
    model = tiny("rotary")
    model.add_head("sbo")
    return model


def batch():
    torch.manual_seed(0)
    tokens = torch.randint(4, 60, (3, 12))
    tokens[:, 0], tokens[:, -1], tokens[0, 9:] = CLS, END, PAD
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 1:5] = asked[0, 6:8] = asked[1, 10] = asked[1, 1] = True
    return masked_batch(tokens, asked, ntokens=33)


def criterion(*more):
    task = Namespace(target_dictionary=Namespace(pad=lambda: PAD), heads=["sbo", *more])
    return CRITERION_REGISTRY["masked_lm_pairs"](Namespace(tpu=False), task)


def test_the_loss_is_that_of_the_paper(monkeypatch):
    """Section 3.2, token by token in float64; no dropout."""
    monkeypatch.setattr(heads, "POSITIONS", 3)  # the fourth token has the third's
    model, sample = spanned(), batch()
    loss, size, output = criterion()(model, sample)
    model.double()
    features = model(**sample["net_input"], features_only=True)[0].detach().numpy()
    scores = model(**sample["net_input"])[0].log_softmax(-1).detach().numpy()
    named = {n: p.detach().numpy() for n, p in model.span_boundary_head.named_parameters()}
    embedding = model.encoder.sentence_encoder.embed_tokens.weight.detach().numpy()

    def layer(x, first):
        x = x @ named[f"layers.{first}.weight"].T + named[f"layers.{first}.bias"]
        x = torch.nn.functional.gelu(torch.tensor(x)).numpy()
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return x * named[f"layers.{first + 2}.weight"] + named[f"layers.{first + 2}.bias"]

    mlm, sbo = 0.0, 0.0
    for row, start, last in ((0, 1, 4), (0, 6, 7), (1, 1, 1), (1, 10, 10)):
        for place in range(start, last + 1):
            position = named["positions.weight"][min(place - start, 2)]
            inputs = features[row, start - 1], features[row, last + 1], position
            logits = embedding @ layer(layer(np.concatenate(inputs), 0), 3)
            token = sample["target"][row, place]
            sbo += np.log(np.exp(logits).sum()) - logits[token]
            mlm -= scores[row, place, token]
    assert size == 8
    assert output["sbo_loss"].item() == pytest.approx(sbo, rel=1e-5)
    assert output["mlm_loss"].item() == pytest.approx(mlm, rel=1e-5)
    assert loss.item() == output["loss"].item() == pytest.approx(mlm + sbo, rel=1e-5)
    with metrics.aggregate() as log:
        criterion().reduce_metrics([output, output])
    found = log.get_smoothed_values()
    assert found["sbo_loss"] == pytest.approx(sbo / 8 / np.log(2), abs=1e-3)
    assert found["loss"] == pytest.approx(found["sbo_loss"] + found["mlm_loss"], abs=2e-3)


def test_the_head_learns_and_a_batch_without_spans_is_no_error():
    model, sample = spanned(), batch()
    criterion()(model, sample)[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    sample["target"].fill_(PAD)
    loss, size, _ = criterion()(model, sample)
    assert loss == size == 0


def test_it_adds_to_the_loss_of_pairs():
    model, sample = spanned(), batch()
    model.add_head("nsp")
    sample["relation"] = torch.tensor([0, 1, 1])
    loss, size, output = criterion("nsp")(model, sample)
    expected = output["mlm_loss"] + output["sbo_loss"] + size * output["nsp_loss"] / 3
    torch.testing.assert_close(loss, expected)


def test_only_models_with_the_head_keep_it_and_it_can_be_new():
    model, plain = spanned(), tiny("rotary")
    state, kept = plain.state_dict(), model.state_dict()
    plain.load_state_dict(kept)  # strictly
    other = spanned()
    other.load_state_dict(state)
    assert torch.equal(kept["encoder.lm_head.weight"], plain.encoder.lm_head.weight)
    assert "span_boundary_head.positions.weight" in other.state_dict()
