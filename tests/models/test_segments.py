"""Segments of text pairs: their labels, and how models and tasks use them."""

import random
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import models
from fairseq.distributed import ModuleProxyWrapper
from fairseq.tasks import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from support.conversion import write_ids
from support.helpers import PAD, VOCABULARY, sentences, task_of
from support.masked_language_models import tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import inherit
from fairseq_posenc.checkpoints.overrides import apply_overrides
from fairseq_posenc.models.masked_lm import MASKED_LM
from fairseq_posenc.models.segments import segment_labels

pytestmark = pytest.mark.properties

SEPARATOR = VOCABULARY.eos()
LINES = ["--sample-break-mode", "eos"]
PAIRS = ["--num-segments", "2", "--segments", "pairs", *LINES]


def by_hand(tokens, segments=2, padding=PAD, separator=SEPARATOR):
    """The segment labels of one row of tokens, by a loop."""
    labels, text, ended = [], 0, False
    for token in tokens:
        if token == padding:
            labels.append(0)
            continue
        if ended and token != separator:
            text = min(text + 1, segments - 1)
        ended = token == separator
        labels.append(text)
    return labels


def rows(draw, count=40, length=24):
    """Rows of one to four texts, with one or two separators in between, padded left or right."""
    for _ in range(count):
        row = [VOCABULARY.bos()]
        between = [SEPARATOR] * draw.randint(1, 2)
        for text in range(draw.randint(1, 4)):
            row += (between if text else []) + [draw.randrange(4, 9) for _ in range(3)]
        row.append(SEPARATOR)
        padding = [PAD] * (length - len(row))
        yield padding + row if draw.random() < 0.5 else row + padding


@pytest.mark.parametrize("segments", [2, 3])
def test_labels_are_those_of_a_loop_over_the_tokens(segments):
    tokens = list(rows(random.Random(1)))
    labels = segment_labels(torch.tensor(tokens), PAD, SEPARATOR, segments)
    assert labels.tolist() == [by_hand(row, segments) for row in tokens]
    assert labels.max() == segments - 1 and labels.dtype == torch.int64


def pairs_of_texts():
    tokens = sentences(2, 9).clamp(min=4)
    tokens[:, 0], tokens[:, 4], tokens[0, 8] = VOCABULARY.bos(), SEPARATOR, SEPARATOR
    tokens[1, 6], tokens[1, 7:] = SEPARATOR, PAD
    return tokens


def test_a_model_reads_pairs_or_a_single_segment():
    tokens = pairs_of_texts()
    labels = torch.tensor([by_hand(row) for row in tokens.tolist()])
    assert labels.sum() == 6
    pairs, single = tiny("rotary", *PAIRS), tiny("rotary", "--num-segments", "2")
    single.load_state_dict(pairs.state_dict())
    first = torch.zeros_like(labels)
    assert torch.equal(pairs(tokens)[0], single(tokens, segment_labels=labels)[0])
    assert torch.equal(pairs(tokens, segment_labels=first)[0], single(tokens)[0])
    assert not torch.allclose(pairs(tokens)[0], single(tokens)[0], atol=1e-3)
    features, _ = pairs(tokens, features_only=True)  # the encoder and its stack use segments, too
    torch.testing.assert_close(pairs.encoder.extract_features(tokens)[0], features)
    stack = pairs.encoder.sentence_encoder(tokens)["encoder_out"][0]
    torch.testing.assert_close(stack.transpose(0, 1), features)


@pytest.mark.parametrize(
    "task, settings, segments",
    [
        ("sentence_prediction", {"init_token": 0}, "pairs"),
        ("sentence_ranking", {"init_token": 0}, "pairs"),
        ("masked_lm", {"sample_break_mode": "eos"}, "pairs"),
        ("masked_lm", {"sample_break_mode": "complete"}, "single"),
        ("masked_lm", {"sample_break_mode": "none"}, "single"),
    ],
)
def test_the_task_decides_the_default(task, settings, segments):
    def chosen(**given):
        cfg = Namespace(position_encoding="rotary", **given)
        MASKED_LM.complete(cfg, {}, Namespace(_name=task, **settings))
        return cfg.segments

    assert chosen(num_segments=2) == segments
    assert chosen(num_segments=2, segments="single") == "single"
    assert chosen(num_segments=1) == chosen(num_segments=0) == "single"


@pytest.fixture
def masked_pairs(tmp_path):
    """A function from --sample-break-mode to a task and its masked batches; and all texts."""
    draw = random.Random(3)
    words = [f"w{number}" for number in range(9)]
    (tmp_path / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    text = lambda: [draw.randrange(4, 13) for _ in range(draw.randint(1, 4))] + [2]  # noqa: E731
    lines = [text() + text() for _ in range(60)]
    write_ids(tmp_path / "train", lines)

    def batches(mode):
        cfg = MaskedLMConfig(data=str(tmp_path), tokens_per_sample=32, sample_break_mode=mode)
        cfg.seed, cfg.mask_prob = 1, 0.5
        task = MaskedLMTask.setup_task(cfg)
        task.load_dataset("train")
        data = task.dataset("train")
        parts = np.array_split(data.ordered_indices(), len(data) // 4)
        return task, [data.collater([data[i] for i in part]) for part in parts]

    return batches, {(0, *line) for line in lines}


def step_of(task, model, batch):
    """The segment labels that a step of *task* passes to *model*."""
    seen = []

    def criterion(model, sample):
        seen.append(sample["net_input"].get("segment_labels"))
        return torch.zeros(()), 1, {}

    task.valid_step(sample=batch, model=model, criterion=criterion)
    return seen[0]


@pytest.mark.parametrize("in_parallel", [False, True])
def test_masked_separators_still_divide_pairs(in_parallel, masked_pairs):
    """Segments are also found if fairseq wraps the model for several processes."""
    batches, lines = masked_pairs
    task, found = batches("eos")
    model, inner = tiny("rotary", *PAIRS), torch.nn.Module()
    if in_parallel:
        inner.module = model
        model = ModuleProxyWrapper(inner)
    hidden = 0
    for batch in found:
        tokens = batch["net_input"]["src_tokens"].tolist()
        target = batch["target"].tolist()
        labels = step_of(task, model, batch).tolist()
        for row, wanted, got in zip(tokens, target, labels):
            whole = [t if w == PAD else w for t, w in zip(row, wanted)]
            assert tuple(t for t in whole if t != PAD) in lines
            assert got == by_hand(whole)
            hidden += got != by_hand(row)
    assert hidden > 10  # labels computed from the masked input would differ


def test_batches_of_other_tasks_and_labels_of_a_batch_are_left_alone(masked_pairs):
    """Batches of --task sentence_ranking have one input per answer."""
    model, other = tiny("rotary", *PAIRS), {"net_input1": {}, "net_input": {}}
    assert step_of(FairseqTask(Namespace(init_token=0)), model, other) is None
    assert other == {"net_input1": {}, "net_input": {}}
    task, (batch, *_) = masked_pairs[0]("eos")
    labels = batch["net_input"]["segment_labels"] = torch.ones_like(batch["target"])
    assert step_of(task, model, batch) is labels


# --- checkpoints from before --segments


@pytest.fixture
def older():
    """The settings of a masked language model with segments, as an older version recorded them."""
    model = tiny("rotary", "--num-segments", "2")
    settings = OmegaConf.to_container(model.completed_settings, enum_to_str=True)
    return {name: value for name, value in settings.items() if name != "segments"}, model


def test_an_older_model_keeps_its_single_segment(older, caplog):
    settings, model = older
    task = task_of("masked_lm", sample_break_mode="eos")
    again = models.build_model(OmegaConf.create(settings), task, from_checkpoint=True).eval()
    assert "older than --segments" in caplog.text and again.completed_settings.segments == "single"
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(pairs_of_texts())[0], model(pairs_of_texts())[0])
    for trained, other in (("single", "pairs"), ("pairs", "single")):
        given = settings if trained == "single" else {**settings, "segments": trained}
        checkpoint = {"cfg": OmegaConf.create({"model": given}), "model": {}}
        with pytest.raises(UsageError, match=f"segments='{other}': .* trained with '{trained}'"):
            apply_overrides(checkpoint, {"segments": other}, "x.pt")


@pytest.mark.parametrize("task, segments", [("masked_lm", None), ("sentence_prediction", "single")])
def test_fine_tuning_begins_anew_or_goes_on_as_it_began(older, task, segments, tmp_path):
    head = {"classification_heads.x.dense.bias": torch.zeros(1)} if segments else {}
    model = {"encoder.sentence_encoder.embed_tokens.weight": torch.zeros(1), **head}
    path = str(tmp_path / "older.pt")
    torch.save({"cfg": {"model": older[0], "task": {"_name": task}}, "model": model}, path)
    args = Namespace(task="sentence_prediction", finetune_from_model=path, save_dir="none")
    inherit(args, MASKED_LM.dataclass, MASKED_LM.model, {})
    assert getattr(args, "segments", None) == segments
