"""--task masked_lm_pairs: text, flags, models and criterions that do not fit are refused."""

import shutil
from argparse import Namespace

import pytest
import torch
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import OmegaConf
from support.conversion import write_ids
from support.masked_language_models import tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.resuming import check_same_kind
from tests.packs.pretraining.text_pairs import END, LINES, task_of

pytest_plugins = ["tests.packs.pretraining.text_pairs"]


@pytest.mark.parametrize(
    "lines, flags, message",
    [
        (LINES[2:4], {"pairs": "nsp"}, "--pairs nsp: .* has 1 document, .*blank lines, or .* sop"),
        ([[4, END], [END]] * 5, {"pairs": "nsp"}, "--pairs nsp: no document of .* two lines in a"),
        ([[4] * 30 + [END]] * 5, {"pairs": "sop"}, "--pairs sop: .* that fit into 21 tokens"),
        ([[END]] * 3, {"pairs": "nsp"}, "train: holds blank lines only"),
        ([[END]] * 3, {"sample_break_mode": "complete_doc"}, "train: holds blank lines only"),
        (LINES, {"pairs": "nsp", "tokens_per_sample": 4}, "--tokens-per-sample 4: .* at least 5"),
        (LINES, {"static_masks": -1}, "--static-masks -1: must be at least 0"),
        (LINES, {"pairs": "nsp", "sample_break_mode": "complete"}, "mode complete: has no effect"),
        (LINES, {"shorten_method": "truncate"}, "--shorten-method truncate: .* not support it"),
        (LINES, {"skip_masking": True}, "--skip-masking: --task masked_lm_pairs does not"),
        (
            LINES,
            {"pairs": "nsp", "masking": "spans", "mask_special_tokens": True},
            "--mask-special-tokens: needs --masking tokens, not spans",
        ),
    ],
)
def test_text_without_pairs_and_wrong_flags_are_one_line(lines, flags, message, data, tmp_path):
    shutil.copy(data / "dict.txt", tmp_path)
    write_ids(tmp_path / "train", lines)
    with pytest.raises(UsageError, match=message):
        task_of(tmp_path, **flags)


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda: torch.nn.Linear(1, 1), "--pairs nsp: --arch roberta has no head .* bert_a_masked"),
        (lambda: tiny("rotary", "--num-segments", "2"), "--num-segments 2: .* in the first seg"),
    ],
)
def test_models_that_cannot_tell_pairs_apart_are_refused(model, message, data, monkeypatch):
    monkeypatch.setattr(MaskedLMTask, "build_model", lambda *_: model())
    with pytest.raises(UsageError, match=message):
        task_of(data, pairs="nsp").build_model(Namespace(_name="roberta"))


@pytest.mark.parametrize(
    "name, before, now",
    [("pairs", "nsp", "sop"), ("unit", "segment", "sentence"), ("masking", "tokens", "spans")],
)
def test_a_run_keeps_its_samples(name, before, now):
    changed, cfg = {("task", name): (before, now)}, Namespace(checkpoint=Namespace())
    with pytest.raises(UsageError, match=f"--{name} {now}: the run in here was trained with "):
        check_same_kind("here/checkpoint_last.pt", changed, cfg)


def test_a_criterion_that_would_not_train_the_head_is_refused(data):
    task = task_of(data, pairs="nsp")
    stock, ours = (
        OmegaConf.create({"_name": name, "tpu": False}) for name in ("masked_lm", "masked_lm_pairs")
    )
    with pytest.raises(UsageError, match="--criterion masked_lm: .* --criterion masked_lm_pairs"):
        task.build_criterion(stock)
    assert list(task.build_criterion(ours).heads) == ["nsp"]
