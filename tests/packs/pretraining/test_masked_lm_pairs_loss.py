"""--task masked_lm_pairs: the loss of tokens and pairs, and trainings by command."""

import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from support.commands import TRAINING, USER_DIR, read, run, succeed
from support.conversion import write_ids
from support.masked_language_models import SMALL, masked_batch, tiny

from fairseq_posenc.models.masked_lm import MaskedLMModel
from tests.models.test_segments import PAIRS as READS_PAIRS
from tests.packs.pretraining.text_pairs import CLS, END, LONGEST, PAD

pytest_plugins = ["tests.packs.pretraining.text_pairs"]


def relating(head="nsp"):
    torch.manual_seed(2)
    model = tiny("rotary", *READS_PAIRS)
    model.add_head(head)
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
    model, ours = relating(relation), criterion(relation)
    outputs, tokens, pairs, tokens_right, pairs_right = [], [], [], 0, 0
    for sample in (batch_of(5, 9), batch_of(3, 12)):
        loss, size, output = ours(model, sample)
        outputs.append(output)
        features = model(**sample["net_input"], features_only=True)[0]
        logits = model.encoder.lm_head(features).detach().double().numpy()
        classes = model.classification_heads["sentence_relation"](features)
        classes, target = classes.detach().double().numpy(), sample["target"].numpy()
        asked = target != PAD

        def nats(scores, right):
            chosen = np.take_along_axis(scores, right[:, None], 1)[:, 0]
            return np.log(np.exp(scores).sum(1)) - chosen

        here = nats(logits[asked], target[asked])
        kinds = nats(classes, sample["relation"].numpy())
        assert size == asked.sum()
        assert loss.item() / int(size) == pytest.approx(here.mean() + kinds.mean(), rel=1e-5)
        tokens += here.tolist()
        pairs += kinds.tolist()
        tokens_right += (logits[asked].argmax(1) == target[asked]).sum()
        pairs_right += (classes.argmax(1) == sample["relation"].numpy()).sum()
    with metrics.aggregate() as log:
        ours.reduce_metrics(outputs)
    found, bits = log.get_smoothed_values(), np.log(2)
    whole = sum(output["loss"].item() for output in outputs) / len(tokens)
    assert found["loss"] == pytest.approx(whole / bits, abs=1e-3)
    assert found["mlm_loss"] == pytest.approx(np.mean(tokens) / bits, abs=1e-3)
    assert found["ppl"] == pytest.approx(np.exp(np.mean(tokens)), rel=1e-2)
    assert found[f"{relation}_loss"] == pytest.approx(np.mean(pairs) / bits, abs=1e-3)
    assert found["accuracy"] == pytest.approx(100 * tokens_right / len(tokens), abs=0.01)
    assert found[f"{relation}_accuracy"] == pytest.approx(100 * pairs_right / len(pairs), abs=0.01)


def test_both_heads_learn_from_one_pass_and_running_text_needs_one():
    model, sample = relating(), batch_of(4, 9)
    criterion("nsp")(model, sample)[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    sample.pop("relation")
    loss, _, output = criterion()(tiny("rotary"), sample)
    assert output["mlm_loss"] == output["loss"] == loss.detach()


def test_the_head_is_left_out_where_it_is_not_needed():
    state = relating().state_dict()
    names = [name for name in state if "sentence_relation" in name]
    assert len(names) == 4
    plain = tiny("rotary", *READS_PAIRS)
    assert isinstance(plain, MaskedLMModel)
    plain.load_state_dict(state)  # strictly
    assert not plain.classification_heads


PRETRAIN = [
    *("--task", "masked_lm_pairs", "--criterion", "masked_lm_pairs", "--pairs", "nsp"),
    *("--arch", "roformer_masked_lm_tiny", *SMALL, "--num-segments", "2"),
    *("--tokens-per-sample", str(LONGEST), "--max-tokens", "1000", "--max-epoch", "4"),
    *("--update-epoch-batch-itr", "True", "--static-masks", "2"),
    *("--masking", "spans", "--span-boundary-objective"),
]


def pretrain(data, folder, *flags):
    return run("train", data, *USER_DIR, "--save-dir", folder, *TRAINING, *PRETRAIN, *flags)


def test_training_resumes_in_mid_epoch_and_fine_tunes(data, tmp_path, monkeypatch):
    straight = pretrain(data, tmp_path / "straight", "--max-update", "9", "--save-interval", "9")
    assert straight.status == 0, straight.err
    part = ["--max-update", "5", "--no-epoch-checkpoints"]
    assert pretrain(data, tmp_path / "parts", *part).status == 0
    resumed = pretrain(data, tmp_path / "parts", "--max-update", "9", "--no-epoch-checkpoints")
    assert resumed.status == 0 and resumed.entries("train_inner")[0]["num_updates"] == "6"
    updates = [f"update {n}" for n in range(6, 10)]
    assert [resumed.losses()[n] for n in updates] == [straight.losses()[n] for n in updates]
    last, other = (tmp_path / name / "checkpoint_last.pt" for name in ("straight", "parts"))
    one, two = read(last)[0], read(other)[0]
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    entry = resumed.entries("valid")[-1]
    assert {"valid_mlm_loss", "valid_sbo_loss", "valid_nsp_loss", "valid_nsp_accuracy"} < set(entry)

    message = pretrain(data, tmp_path / "parts", "--static-masks", "3").message()
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
    task = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
    task += ["--arch", "posenc_masked_lm", "--init-token", "0", "--separator-token", "2"]
    task += ["--num-classes", "2", "--max-positions", str(LONGEST), "--finetune-from-model", last]
    task += ["--max-epoch", "1", "--save-dir", tmp_path / "tuned"]
    tuned = run("train", tmp_path, *USER_DIR, *TRAINING, *task)
    assert tuned.status == 0, tuned.err
    for head in ("classification_heads.sentence_relation", "span_boundary_head"):
        assert f"left out {head}, which only --" in tuned.out + tuned.err
    assert "deleting classification head" not in tuned.out + tuned.err
    state, settings = read(tmp_path / "tuned" / "checkpoint_last.pt")
    assert settings["segments"] == "pairs"
    assert not any("sentence_relation" in name or "span_boundary" in name for name in state)
