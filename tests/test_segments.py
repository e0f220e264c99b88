"""Segments of pairs: the labels, who gets them, and imported classifiers in fairseq's own tasks."""

import logging
import random
from argparse import Namespace

import numpy as np
import pytest
import torch
from commands import TRAINING, USER_DIR, read, run, succeed
from conversion import SYMBOLS, convert, reference_folder, roformer_weights, write_folder
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from helpers import PAD, VOCABULARY, model_settings, sentences
from test_masked_lm import SMALL, tiny

from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.errors import UsageError
from fairseq_posenc.models.masked_lm import MaskedLMModel
from fairseq_posenc.modules.segments import segment_labels

SEPARATOR = VOCABULARY.eos()
LINES = ["--sample-break-mode", "eos"]
PAIRS = ["--num-segments", "2", "--segments", "pairs", *LINES]
HEAD = "sentence_classification_head"
CLASSIFY = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
CLASSIFY += ["--init-token", "0", "--batch-size", "2"]
DROPOUTS = ["--dropout", "--attention-dropout", "--pooler-dropout"]
VALIDATE = ["--cpu", "--num-workers", "0", "--log-format", "json"]


def by_hand(tokens, segments=2, padding=PAD, separator=SEPARATOR):
    """The labels of one row of tokens, one after the other."""
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
    """Rows of one to four texts with one or two separators between them, padded on either side."""
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


# --- the model


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
    assert torch.equal(pairs(tokens)[0], single(tokens, labels)[0])
    assert torch.equal(pairs(tokens, torch.zeros_like(labels))[0], single(tokens)[0])
    assert not torch.allclose(pairs(tokens)[0], single(tokens)[0], atol=1e-3)


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
    from fairseq_posenc.models.masked_lm import MASKED_LM

    def chosen(**given):
        cfg = Namespace(position_encoding="rotary", **given)
        MASKED_LM.complete(cfg, {}, Namespace(_name=task, **settings))
        return cfg.segments

    assert chosen(num_segments=2) == segments
    assert chosen(num_segments=2, segments="single") == "single"
    assert chosen(num_segments=1) == chosen(num_segments=0) == "single"


def test_pairs_need_a_second_segment_and_lines_of_their_own():
    with pytest.raises(UsageError, match="--segments pairs: .* give --num-segments 2"):
        tiny("rotary", "--segments", "pairs", *LINES)
    flags = ["--position-encoding", "rotary", *SMALL, *PAIRS, "--sample-break-mode", "complete"]
    with pytest.raises(UsageError, match="--sample-break-mode complete makes blocks .* give --s"):
        model_settings("posenc_masked_lm", *flags, task="masked_lm")


@pytest.mark.parametrize("flags, lines", [(PAIRS, 0), (PAIRS[:2], 1), ([], 0)])
def test_a_segment_that_is_never_trained_is_named_once(flags, lines, caplog):
    model = tiny("rotary", *flags)
    tokens = pairs_of_texts()
    with caplog.at_level(logging.INFO, logger="fairseq_posenc.modules.masked_lm"):
        for _ in range(12):
            model(tokens)  # evaluation says nothing
        assert not caplog.messages
        for _ in range(25):
            model.train()(tokens)
    assert len(caplog.messages) == lines
    assert all("--num-segments 2: no second text in the first 10" in m for m in caplog.messages)


def test_single_texts_train_no_second_segment(caplog):
    model = tiny("rotary", *PAIRS).train()
    tokens = pairs_of_texts()[:, :5]
    with caplog.at_level(logging.INFO, logger="fairseq_posenc.modules.masked_lm"):
        for _ in range(12):
            model(tokens)
    assert len(caplog.messages) == 1


# --- masked pairs


@pytest.fixture
def masked_pairs(tmp_path):
    """A function from a --sample-break-mode to masked batches of pairs, and what was masked."""
    draw = random.Random(3)
    words = [f"w{number}" for number in range(9)]
    (tmp_path / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    lines = [
        [draw.randrange(4, 13) for _ in range(draw.randint(1, 4))]
        + [2]
        + [draw.randrange(4, 13) for _ in range(draw.randint(1, 4))]
        + [2]
        for _ in range(60)
    ]
    write_ids(tmp_path / "train", lines)

    def batches(mode):
        cfg = MaskedLMConfig(data=str(tmp_path), tokens_per_sample=32, sample_break_mode=mode)
        cfg.seed, cfg.mask_prob = 1, 0.5
        task = MaskedLMTask.setup_task(cfg)
        task.load_dataset("train")
        data = task.dataset("train")
        parts = np.array_split(data.ordered_indices(), len(data) // 4)
        return task, [data.collater([data[i] for i in part]) for part in parts]

    return batches, {tuple([0, *line]) for line in lines}


def write_ids(prefix, lines):
    """A split of binarised data, as fairseq-preprocess writes it."""
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
    for line in lines:
        builder.add_item(torch.tensor(line))
    builder.finalize(f"{prefix}.idx")


def step_of(task, model, batch):
    """The labels with which a step of *task* calls *model*."""
    seen = []

    def criterion(model, sample):
        seen.append(sample["net_input"].get("segment_labels"))
        return torch.zeros(()), 1, {}

    task.valid_step(sample=batch, model=model, criterion=criterion)
    return seen[0]


def test_masked_separators_still_divide_pairs(masked_pairs):
    batches, lines = masked_pairs
    task, found = batches("eos")
    model = tiny("rotary", *PAIRS)
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
    assert hidden > 10  # the masked tokens alone would give other labels


def test_running_text_is_one_segment(masked_pairs):
    batches, _ = masked_pairs
    for mode in ("complete", "none"):
        task, found = batches(mode)
        assert not any(step_of(task, tiny("rotary", *PAIRS), batch).any() for batch in found)
        assert step_of(task, tiny("rotary", *PAIRS[:2]), batches(mode)[1][0]) is None


def test_labels_in_the_batch_are_kept(masked_pairs):
    task, (batch, *_) = masked_pairs[0]("eos")
    own = torch.ones_like(batch["target"])
    batch["net_input"]["segment_labels"] = own
    assert step_of(task, tiny("rotary", *PAIRS), batch) is own


# --- imported classifiers


class Imported:
    """An imported pair classifier, data of the pairs in its reference, and the logits for them."""

    def __init__(self, folder, reference):
        source = reference_folder(folder / "source", reference, safe=False)
        convert("import", "hf-roformer", source, folder / "model")
        self.checkpoint = folder / "model" / "checkpoint.pt"
        symbols = (folder / "model" / "dict.txt").read_text(encoding="utf-8")
        known = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
        known += [line.rpartition(" ")[0] for line in symbols.splitlines()] + ["[MASK]"]
        ours = [known.index(symbol) for symbol in reference["meta"]["symbols"]]
        tokens = reference["inputs"]["full"]["input_ids"].tolist()
        self.rows = [[ours[number] for number in row] for row in tokens]
        self.logits = reference["outputs"]["logits_full"].double()
        self.classes = [2, 0, 1]
        chosen = self.logits.log_softmax(-1)[range(3), self.classes]
        self.loss = -float(chosen.mean()) / torch.tensor(2.0).log().item()
        self.data = folder / "data"
        for name, part in (("input0", 0), ("input1", 1)):
            self._write(name, symbols, [self.texts(row)[part] for row in self.rows])
        labels = "LABEL_0 1\nLABEL_1 1\nLABEL_2 1\n"
        self._write("label", labels, [[4 + number, 2] for number in self.classes])

    @staticmethod
    def texts(row):
        """The two texts in a row ``[CLS] a [SEP] b [SEP]``, each with its separator."""
        end = row.index(2) + 1
        return row[1:end], row[end:]

    def _write(self, name, symbols, lines):
        (self.data / name).mkdir(parents=True)
        (self.data / name / "dict.txt").write_text(symbols, encoding="utf-8")
        for split in ("train", "valid"):
            write_ids(self.data / name / split, lines)

    def validate(self, checkpoint, *flags):
        usual = [*USER_DIR, "--path", checkpoint, *CLASSIFY, *VALIDATE]
        found = succeed("validate", self.data, *usual, *flags).entries("valid")
        return float(found[0]["valid_loss"])

    def train(self, folder, *flags):
        usual = [*USER_DIR, "--save-dir", folder, *TRAINING, "--arch", "posenc_masked_lm", "--lr"]
        rest = ["0", *CLASSIFY, "--num-classes", "3", "--max-positions", "64"]
        rest += [word for flag in DROPOUTS for word in (flag, "0")]
        return succeed("train", self.data, *usual, *rest, *flags)


@pytest.fixture(scope="module")
def imported(tmp_path_factory, golden):
    return Imported(tmp_path_factory.mktemp("imported"), golden("hf_roformer_cls"))


def test_the_dataset_of_the_task_gives_the_logits_of_the_reference(imported):
    overrides = {"task": "sentence_prediction", "data": str(imported.data), "init_token": 0}
    paths = [str(imported.checkpoint)]
    (model,), cfg, task = load_model_ensemble_and_task(paths, arg_overrides=overrides)
    assert (cfg.task.num_classes, cfg.task.max_positions) == (3, 64)
    data = task.load_dataset("valid")
    batch = data.collater([data[number] for number in range(3)])
    assert sorted(batch["net_input"]["src_tokens"].tolist()) == sorted(imported.rows)
    model.eval()
    with torch.no_grad():
        got = model(**batch["net_input"], classification_head_name=HEAD)[0]
        flat = model(
            **batch["net_input"],
            segment_labels=torch.zeros_like(batch["net_input"]["src_tokens"]),
            classification_head_name=HEAD,
        )[0]
    want = imported.logits[batch["id"]]
    torch.testing.assert_close(got.double(), want, atol=5e-5, rtol=1e-5)
    assert (flat - want).abs().max() > 0.05  # as before segments reached the model


def test_the_hub_interface_predicts_the_logits_of_the_reference(imported):
    folder = str(imported.checkpoint.parent)
    hub = MaskedLMModel.from_pretrained(folder, "checkpoint.pt", folder, bpe=None).eval()
    rows = torch.tensor(imported.rows)
    got = hub.predict(HEAD, rows, return_logits=True)
    torch.testing.assert_close(got.double(), imported.logits, atol=5e-5, rtol=1e-5)


def test_commands_give_the_loss_of_the_reference(imported, tmp_path):
    """fairseq-validate on the imported file; fine-tuning at a rate of 0; validating what it saved."""
    assert imported.validate(imported.checkpoint) == pytest.approx(imported.loss, abs=2e-3)
    log = imported.train(tmp_path, "--finetune-from-model", imported.checkpoint)
    assert log.losses()["valid 1"] == pytest.approx(imported.loss, abs=2e-3)
    assert log.losses()["train 1"] == pytest.approx(imported.loss, abs=2e-3)
    last = tmp_path / "checkpoint_last.pt"
    assert read(last)[1]["segments"] == "pairs"
    assert imported.validate(last) == pytest.approx(imported.loss, abs=2e-3)


def test_what_validate_cannot_classify_is_one_line(tmp_path, imported):
    torch.manual_seed(0)
    source = write_folder(tmp_path / "source", roformer_weights())
    convert("import", "hf-roformer", source, tmp_path / "model")
    path = tmp_path / "model" / "checkpoint.pt"
    flags = [*USER_DIR, "--path", path, *CLASSIFY, *VALIDATE]
    message = run("validate", imported.data, *flags).message()
    assert "--task sentence_prediction" in message and "no classification head" in message
    assert len(SYMBOLS) == 11  # the vocabulary of that model is another one


# --- checkpoints from before there was a choice


def without_segments(source, target):
    """A copy of a checkpoint as an older version would have written it."""
    state = read_checkpoint(source)
    settings = state["cfg"]["model"]
    (settings if isinstance(settings, dict) else vars(settings)).pop("segments")
    target.parent.mkdir(exist_ok=True)
    torch.save(state, target)
    return target


def test_an_older_classifier_keeps_its_numbers(imported, tmp_path, caplog):
    old = without_segments(imported.checkpoint, tmp_path / "old" / "checkpoint.pt")
    folder = str(imported.checkpoint.parent)
    with caplog.at_level(logging.WARNING):
        hub = MaskedLMModel.from_pretrained(str(old.parent), old.name, folder, bpe=None).eval()
    assert "older than --segments" in caplog.text
    rows = torch.tensor(imported.rows)
    flat = hub.model(rows, torch.zeros_like(rows), classification_head_name=HEAD)[0]
    assert torch.equal(hub.predict(HEAD, rows, return_logits=True), flat)


def test_an_older_training_resumes_as_it_began_and_a_new_one_reads_pairs(imported, tmp_path):
    old = without_segments(imported.checkpoint, tmp_path / "import" / "checkpoint.pt")
    imported.train(tmp_path / "new", "--finetune-from-model", old)
    assert read(tmp_path / "new" / "checkpoint_last.pt")[1]["segments"] == "pairs"
    without_segments(tmp_path / "new/checkpoint_last.pt", tmp_path / "old/checkpoint_last.pt")
    imported.train(tmp_path / "old", "--max-epoch", "2")
    assert read(tmp_path / "old" / "checkpoint_last.pt")[1]["segments"] == "single"
