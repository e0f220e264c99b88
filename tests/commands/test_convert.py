"""Imported checkpoints in fairseq's own commands, and exports of models fine-tuned from them."""

import re

import pytest
import torch
from support.commands import USER_DIR, posenc, read, succeed, train
from support.conversion import SYMBOLS, convert, roformer_weights, write_folder
from support.foreign_models import SOURCES

from fairseq_posenc.models import kinds

pytest_plugins = ["support.conversion"]
pytestmark = pytest.mark.journeys

MASKED = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "40"]
CLASSIFY = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
CLASSIFY += ["--init-token", "0", "--num-classes", "3", "--max-positions", "40"]
LABELS = {"0": "z", "1": "x", "2": "y"}  # the most frequent label first


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A folder with an imported masked language model, and data binarised for it."""
    folder = tmp_path_factory.mktemp("imported")
    torch.manual_seed(0)
    source = write_folder(folder / "source", roformer_weights())
    out = posenc("import", "hf-roformer", source, folder / "model").out
    (folder / "flags").write_text(re.findall("further: (.*)", out)[0])
    words = [symbol for symbol in SYMBOLS if "[" not in symbol]
    (folder / "text").write_text("".join(f"{' '.join(words[i % 5 :])}\n" for i in range(24)))
    flags = ["--only-source", "--srcdict", folder / "model" / "dict.txt"]
    text = folder / "text"
    succeed(
        "preprocess", *flags, "--trainpref", text, "--validpref", text, "--destdir", folder / "data"
    )
    return folder


def test_every_command_takes_it(imported, tmp_path):
    data, checkpoint = imported / "data", imported / "model" / "checkpoint.pt"
    usual = [data, *USER_DIR, "--path", checkpoint, "--cpu", "--max-tokens", "160"]
    before = succeed("validate", *usual, *MASKED[:2], "--log-format", "json").entries("valid")
    for flag in ("--restore-file", "--finetune-from-model"):
        shape = (imported / "flags").read_text().split()
        flags = [*shape, *MASKED, flag, checkpoint, "--lr", "0", "--clip-norm", "0"]
        train(data, tmp_path / flag, *flags)
        state, settings = read(tmp_path / flag / "checkpoint_last.pt")
        start, theirs = read(checkpoint)
        for name, value in start.items():
            assert torch.equal(state[name], value), name  # at a learning rate of 0
        assert settings["layer_norm_eps"] == theirs["layer_norm_eps"] == 1e-12
    assert float(before[0]["valid_loss"]) > 0
    arguments = ["--inputs", checkpoint, "--output", tmp_path / "mean.pt"]
    mean = posenc("average", *arguments)
    assert mean.status == 0, mean.err
    assert read(tmp_path / "mean.pt")[0].keys() == start.keys()


@pytest.fixture(scope="module")
def labelled(imported):
    """The same texts, with a label for each."""
    data, text, labels = imported / "labelled", imported / "text", imported / "labels"
    flags = ["--only-source", "--trainpref", text, "--validpref", text]
    dictionary = imported / "model" / "dict.txt"
    succeed("preprocess", *flags, "--srcdict", dictionary, "--destdir", data / "input0")
    labels.write_text("".join(f"{'zxyz'[i % 4]}\n" for i in range(24)))
    flags = ["--only-source", "--trainpref", labels, "--validpref", labels]
    succeed("preprocess", *flags, "--destdir", data / "label")
    return data


def test_an_imported_model_is_fine_tuned_and_goes_out_as_a_classifier(
    labelled, transformers, tmp_path
):
    """``export --verify`` compares the predictions with those of the trained checkpoint."""
    torch.manual_seed(2)
    source = SOURCES["hf-modernbert"](tmp_path / "source")
    convert("import", "hf-modernbert", source, tmp_path / "model")
    checkpoint, tuned = tmp_path / "model" / "checkpoint.pt", tmp_path / "tuned"
    flags = ["--arch", "posenc_masked_lm", *CLASSIFY, "--finetune-from-model", checkpoint]
    pooler = ["--pooler-norm", "--pooler-activation-fn", "gelu", "--pooler", "mean"]
    train(labelled, tuned, *flags, *pooler)
    last = tuned / "checkpoint_last.pt"
    assert not torch.equal(*(read(path)[0][kinds.MASKED.embedding] for path in (last, checkpoint)))
    convert("export", "hf-modernbert", last, tmp_path / "out", "--verify")

    automatic = transformers.AutoModelForSequenceClassification
    theirs = automatic.from_pretrained(tmp_path / "out").eval()
    assert theirs.config.id2label == {int(n): label for n, label in LABELS.items()}
