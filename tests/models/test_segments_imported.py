"""Imported pair classifiers in fairseq's own tasks give the logits of their reference."""

import logging

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from support.commands import TRAINING, USER_DIR, read, run, succeed
from support.conversion import convert, reference_folder, roformer_weights, write_folder, write_ids

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.models.masked_lm import MaskedLMModel

HEAD = "sentence_classification_head"
CLASSIFY = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
CLASSIFY += ["--init-token", "0", "--batch-size", "2"]
DROPOUTS = ["--dropout", "--attention-dropout", "--pooler-dropout"]
VALIDATE = ["--cpu", "--num-workers", "0", "--log-format", "json"]


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
    folder = str(imported.checkpoint.parent)
    hub = MaskedLMModel.from_pretrained(folder, "checkpoint.pt", folder, bpe=None).eval()
    predicted = hub.predict(HEAD, torch.tensor(imported.rows), return_logits=True)
    torch.testing.assert_close(predicted.double(), imported.logits, atol=5e-5, rtol=1e-5)


def test_commands_give_the_loss_of_the_reference(imported, tmp_path):
    """Validating the imported file, fine-tuning at a rate of 0, validating what that saved."""
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


def test_what_an_older_checkpoint_was_trained_with_cannot_be_overridden(imported, tmp_path):
    old = without_segments(imported.checkpoint, tmp_path / "old" / "checkpoint.pt")
    for path, trained, other in (
        (old, "single", "pairs"),
        (imported.checkpoint, "pairs", "single"),
    ):
        with pytest.raises(UsageError, match=f"segments='{other}': .* trained with '{trained}'"):
            load_model_ensemble_and_task([str(path)], arg_overrides={"segments": other})
