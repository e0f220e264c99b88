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

TEXTS = {
    "usual": LINES,
    "one document": LINES[2:4],
    "single lines": [[4, END], [END]] * 5,
    "long lines": [[4] * 30 + [END]] * 5,
    "blank": [[END]] * 3,
}
NSP, SPANS = {"pairs": "nsp"}, {"masking": "spans"}
BOUNDARY = {**SPANS, "span_boundary_objective": True}
MISTAKES = [
    ("one document", NSP, "--pairs nsp: .* has 1 document, .*blank lines, or .* sop"),
    ("single lines", NSP, "--pairs nsp: no document of .* two lines in a"),
    ("long lines", {"pairs": "sop"}, "--pairs sop: .* that fit into 21 tokens"),
    ("blank", NSP, "train: holds blank lines only"),
    ("blank", {"sample_break_mode": "complete_doc"}, "train: holds blank lines only"),
    ("usual", {**NSP, "tokens_per_sample": 4}, "--tokens-per-sample 4: .* at least 5"),
    ("usual", {"static_masks": -1}, "--static-masks -1: must be at least 0"),
    ("usual", {**NSP, "sample_break_mode": "complete"}, "mode complete: has no effect"),
    ("usual", {"shorten_method": "truncate"}, "--shorten-method truncate: .* not support it"),
    ("usual", {"skip_masking": True}, "--skip-masking: --task masked_lm_pairs does not"),
    ("usual", {**NSP, **SPANS, "mask_special_tokens": True}, "--masking tokens, not spans"),
    ("usual", {**SPANS, "mask_whole_words": True}, "--mask-whole-words: has no effect with"),
    ("usual", {"masking": "words", "mask_stdev": 1.0}, "--mask-stdev 1.0: has no effect with"),
    ("usual", {"masking": "phrases"}, "--masking phrases: needs --phrases FILE"),
    ("usual", {"phrases": "x"}, "--phrases x: has no effect with --masking tokens"),
    ("usual", {**BOUNDARY, "masking": "tokens"}, "needs spans, not --masking tokens; give"),
    ("usual", {**SPANS, "mask_prob": 1.0}, "--mask-prob 1.0: must be between 0 and 1"),
    ("usual", {**SPANS, "random_token_prob": 0.95}, "0.1 --random-token-prob 0.95: .* at mo"),
    ("usual", {"mask_whole_words": True}, "--mask-whole-words: needs --bpe .* --masking words"),
]


@pytest.mark.parametrize("text, flags, message", MISTAKES)
def test_texts_and_flags_that_do_not_fit_are_one_line(text, flags, message, data, tmp_path):
    shutil.copy(data / "dict.txt", tmp_path)
    write_ids(tmp_path / "train", TEXTS[text])
    with pytest.raises(UsageError, match=message):
        task_of(tmp_path, **flags)


def two_segments():
    return tiny("rotary", "--num-segments", "2")


@pytest.mark.parametrize(
    "flags, model, message",
    [
        (NSP, torch.nn.Module, "--pairs nsp: --arch roberta has no head .* bert_a_masked"),
        (NSP, two_segments, "--num-segments 2: .* in the first seg"),
        (BOUNDARY, torch.nn.Module, "--span-boundary-objective: --arch roberta has no head"),
    ],
)
def test_models_without_heads_or_segments_are_refused(flags, model, message, data, monkeypatch):
    monkeypatch.setattr(MaskedLMTask, "build_model", lambda *_: model())
    with pytest.raises(UsageError, match=message):
        task_of(data, **flags).build_model(Namespace(_name="roberta"))


@pytest.mark.parametrize(
    "name, before, now",
    [("pairs", "nsp", "sop"), ("unit", "segment", "sentence"), ("masking", "tokens", "spans")],
)
def test_a_run_keeps_its_samples(name, before, now):
    changed, cfg = {("task", name): (before, now)}, Namespace(checkpoint=Namespace())
    with pytest.raises(UsageError, match=f"--{name} {now}: the run in here was trained with "):
        check_same_kind("here/checkpoint_last.pt", changed, cfg)


@pytest.mark.parametrize(
    "flags, head, words",
    [(NSP, "nsp", "--criterion masked_lm_pairs"), (BOUNDARY, "sbo", "--span-boundary-objective")],
)
def test_a_criterion_that_would_not_train_the_head_is_refused(flags, head, words, data):
    task = task_of(data, **flags)
    stock, ours = (
        OmegaConf.create({"_name": name, "tpu": False}) for name in ("masked_lm", "masked_lm_pairs")
    )
    with pytest.raises(UsageError, match=f"--criterion masked_lm: .* {words}"):
        task.build_criterion(stock)
    assert list(task.build_criterion(ours).heads) == [head]
