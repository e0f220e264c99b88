"""Imported pair classifiers in fairseq's own tasks give the logits of their reference."""

import pytest
import torch
from support.commands import TRAINING, USER_DIR, read, succeed
from support.conversion import convert, reference_folder, write_ids

pytestmark = pytest.mark.journeys

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


def test_commands_give_the_loss_of_the_reference(imported, tmp_path):
    """Validating the imported file, fine-tuning at a rate of 0, validating what that saved."""
    assert imported.validate(imported.checkpoint) == pytest.approx(imported.loss, abs=2e-3)
    log = imported.train(tmp_path, "--finetune-from-model", imported.checkpoint)
    assert log.losses()["valid 1"] == pytest.approx(imported.loss, abs=2e-3)
    assert log.losses()["train 1"] == pytest.approx(imported.loss, abs=2e-3)
    last = tmp_path / "checkpoint_last.pt"
    assert read(last)[1]["segments"] == "pairs"
    assert imported.validate(last) == pytest.approx(imported.loss, abs=2e-3)
