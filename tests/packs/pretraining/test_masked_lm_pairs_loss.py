"""--task masked_lm_pairs: the losses of tokens, pairs and spans, and trainings.

The span boundary objective is SpanBERT's, arXiv 1907.10529, section 3.2.
"""

import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.commands import USER_DIR, read, refusal, succeed, train
from support.conversion import convert, reload, write_ids
from support.expressed import trained
from support.masked_language_models import SMALL, masked_batch, tiny
from support.masked_lm_runs import CLASSIFY

from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.packs.pretraining import heads
from fairseq_posenc.packs.pretraining.heads import SpanBoundaryLayers
from tests.models.test_segments import PAIRS as READS_PAIRS
from tests.packs.pretraining.text_pairs import CLS, END, LONGEST, PAD

pytest_plugins = ["support.conversion", "tests.packs.pretraining.text_pairs"]
pytestmark = pytest.mark.formulas


def with_head(name, *flags):
    torch.manual_seed(2)
    model = tiny("rotary", *flags)
    model.add_head(name)
    return model


def criterion(*heads):
    task = Namespace(heads=heads, target_dictionary=Namespace(pad=lambda: PAD))
    return CRITERION_REGISTRY["masked_lm_pairs"](Namespace(tpu=False), task)


def batch_of(count, length):
    tokens = torch.randint(4, 9, (count, length))
    tokens[:, 0], tokens[:, 4], tokens[:, -1] = CLS, END, END
    asked = torch.rand(tokens.shape) < 0.4
    return masked_batch(tokens, asked, relation=torch.randint(0, 2, (count,)))


@pytest.mark.parametrize("relation", ["nsp", "sop"])
def test_the_loss_is_the_mean_of_tokens_plus_that_of_pairs(relation):
    model, ours = with_head(relation, *READS_PAIRS), criterion(relation)
    outputs, tokens, pairs = [], [], []  # nats, and whether the prediction is correct
    for sample in (batch_of(5, 9), batch_of(3, 12)):
        loss, size, output = ours(model, sample)
        outputs.append(output)
        features = model(**sample["net_input"], features_only=True)[0]
        asked, means = sample["target"].ne(PAD), []
        for seen, scores, right in (
            (tokens, model.encoder.lm_head(features)[asked], sample["target"][asked]),
            (pairs, model.classification_heads["sentence_relation"](features), sample["relation"]),
        ):
            nats = -scores.double().log_softmax(-1)[range(len(right)), right]
            means.append(nats.mean().item())
            seen += zip(nats.tolist(), scores.argmax(1).eq(right).tolist())
        assert size == asked.sum()
        assert loss.item() / int(size) == pytest.approx(sum(means), rel=1e-5)
    with metrics.aggregate() as log:
        ours.reduce_metrics(outputs)
    found, bits = log.get_smoothed_values(), np.log(2)
    whole = sum(output["loss"].item() for output in outputs) / len(tokens)
    assert found["loss"] == pytest.approx(whole / bits, abs=1e-3)
    assert found["ppl"] == pytest.approx(np.exp(np.mean(tokens, axis=0)[0]), rel=1e-2)
    for seen, name, of in ((tokens, "mlm", ""), (pairs, relation, f"{relation}_")):
        nats, right = np.mean(seen, axis=0)
        assert found[f"{name}_loss"] == pytest.approx(nats / bits, abs=1e-3)
        assert found[f"{of}accuracy"] == pytest.approx(100 * right, abs=0.01)


@pytest.mark.parametrize("head", ["nsp", "sbo"])
def test_only_models_with_a_head_keep_it_and_it_can_be_new(head):
    model, plain = with_head(head), tiny("rotary")
    before = set(plain.state_dict())
    plain.load_state_dict(model.state_dict())  # strictly
    assert set(plain.state_dict()) == before < set(model.state_dict())
    model.load_state_dict(plain.state_dict())


PRETRAIN = [
    *("--task", "masked_lm_pairs", "--criterion", "masked_lm_pairs", "--pairs", "nsp"),
    *("--arch", "roformer_masked_lm_tiny", *SMALL, "--num-segments", "2"),
    *("--tokens-per-sample", str(LONGEST), "--max-tokens", "1000", "--max-epoch", "4"),
    *("--update-epoch-batch-itr", "True", "--static-masks", "2"),
    *("--masking", "spans", "--span-boundary-objective"),
]


def test_training_resumes_in_mid_epoch_and_fine_tunes(data, tmp_path):
    whole = ["--save-interval", "9", "--max-update"]
    part = ["--no-epoch-checkpoints", "--max-update"]
    straight = train(data, tmp_path / "straight", *PRETRAIN, *whole, "9")
    train(data, tmp_path / "parts", *PRETRAIN, *part, "5")
    resumed = train(data, tmp_path / "parts", *PRETRAIN, *part, "9")
    assert resumed.entries("train_inner")[0]["num_updates"] == "6"
    updates = [f"update {n}" for n in range(6, 10)]
    assert [resumed.losses()[n] for n in updates] == [straight.losses()[n] for n in updates]
    last, other = (tmp_path / name / "checkpoint_last.pt" for name in ("straight", "parts"))
    one, two = read(last)[0], read(other)[0]
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    entry = resumed.entries("valid")[-1]
    assert {"valid_mlm_loss", "valid_sbo_loss", "valid_nsp_loss", "valid_nsp_accuracy"} < set(entry)

    message = refusal(data, tmp_path / "parts", *PRETRAIN, "--static-masks", "3")
    assert "--static-masks 3: the run in" in message and "was trained with 2" in message

    usual = ["--path", last, "--cpu", "--num-workers", "0", "--log-format", "json"]
    task = ["--task", "masked_lm_pairs", "--pairs", "none", "--sample-break-mode", "complete"]
    common = succeed("validate", data, *USER_DIR, *usual, *task, "--batch-size", "32")
    assert "valid_nsp_loss" not in common.entries("valid")[0]

    for name in ("input0", "input1", "label"):
        (tmp_path / name).mkdir()
        shutil.copy(data / "dict.txt", tmp_path / name)
        for split in ("train", "valid"):
            write_ids(tmp_path / name / split, [[4 + n % 2, END] for n in range(8)])
    task = [*CLASSIFY, "--arch", "posenc_masked_lm"]
    task += ["--num-classes", "2", "--max-positions", str(LONGEST), "--finetune-from-model", last]
    tuned = train(tmp_path, tmp_path / "tuned", *task)
    for head in ("classification_heads.sentence_relation", "span_boundary_head"):
        assert f"left out {head}, which only --" in tuned.out + tuned.err
    assert "deleting classification head" not in tuned.out + tuned.err
    state, settings = read(tmp_path / "tuned" / "checkpoint_last.pt")
    assert settings["segments"] == "pairs"
    assert not any("sentence_relation" in name or "span_boundary" in name for name in state)


def spans():
    torch.manual_seed(0)
    tokens = torch.randint(4, 60, (3, 12))
    tokens[:, 0], tokens[:, -1], tokens[0, 9:] = CLS, END, PAD
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 1:5] = asked[0, 6:8] = asked[1, 10] = asked[1, 1] = True
    return masked_batch(tokens, asked, ntokens=33)


def test_the_loss_of_spans_is_that_of_the_paper(monkeypatch):
    """Section 3.2 with a loop over tokens, in float64, without dropout."""
    monkeypatch.setattr(heads, "POSITIONS", 3)  # so tokens 3 and 4 of a span share a vector
    model, sample = with_head("sbo"), spans()
    loss, size, output = criterion("sbo")(model, sample)
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
        criterion("sbo").reduce_metrics([output, output])
    found = log.get_smoothed_values()
    assert found["sbo_loss"] == pytest.approx(sbo / 8 / np.log(2), abs=1e-3)
    assert found["loss"] == pytest.approx(found["sbo_loss"] + found["mlm_loss"], abs=2e-3)


def test_all_heads_learn_from_one_pass_and_a_batch_may_need_none():
    model, sample = with_head("sbo", *READS_PAIRS), spans()
    model.add_head("nsp")
    sample["relation"] = torch.tensor([0, 1, 1])
    loss, size, output = criterion("sbo", "nsp")(model, sample)
    expected = output["mlm_loss"] + output["sbo_loss"] + size * output["nsp_loss"] / 3
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    del sample["relation"]
    loss, _, output = criterion()(tiny("rotary"), sample)
    assert output["mlm_loss"] == output["loss"] == loss.detach()
    sample["target"].fill_(PAD)  # no spans
    loss, size, _ = criterion("sbo")(model, sample)
    assert loss == size == 0


def test_heads_of_pretraining_are_left_out(transformers, tmp_path, capsys):
    checkpoint = trained(tmp_path / "ours", "sentence_relation", position_encoding="rotary")
    state = load_file(checkpoint)
    spans = SpanBoundaryLayers(16, 16).state_dict()
    state["model"].update({f"span_boundary_head.{name}": value for name, value in spans.items()})
    write_checkpoint(state, checkpoint)
    convert("export", "hf-roformer", checkpoint, tmp_path / "out", "--verify")
    notes = capsys.readouterr().out
    assert "note: the head sentence_relation, which only --pairs needs, is left out" in notes
    assert "note: span_boundary_head, which only --span-boundary-objective needs, is left" in notes
    reload(transformers, "RoFormerForMaskedLM", tmp_path / "out")
