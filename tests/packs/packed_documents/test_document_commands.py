"""--document-mask through fairseq's commands: the perplexity is that of each document alone."""

import pytest
from support.conversion import convert
from support.expressed import trained
from support.toy_lm import eval_lm, perplexity, train_lm

pytest_plugins = ("support.toy", "support.toy_lm", "support.conversion")
pytestmark = pytest.mark.journeys
WHOLE = ["--tokens-per-sample", "60", "--max-target-positions", "128"]


@pytest.fixture(scope="module")
def checkpoint(corpus, once):
    """A language model of three epochs of samples of several documents, each a line."""
    flags = ["--position-encoding", "learned+t5", "--document-mask", "--max-epoch", "3"]
    flags += [*WHOLE, "--sample-break-mode", "complete"]
    folder = once("document_mask", lambda folder: train_lm(corpus, folder, "posenc_lm", *flags))
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize(
    "packed",
    [
        ["--sample-break-mode", "complete"],
        # lines are shorter than this context, so each is seen whole
        ["--sample-break-mode", "none", "--context-window", "40"],
    ],
)
def test_perplexity_is_that_of_each_document_alone(packed, corpus, checkpoint):
    given = ["--model-overrides", "{'max_target_positions': 128}", *WHOLE]
    alone = perplexity(eval_lm(corpus, checkpoint, *given, "--sample-break-mode", "eos"))
    assert perplexity(eval_lm(corpus, checkpoint, *given, *packed)) == alone
    without = ["--model-overrides", "{'max_target_positions': 128, 'document_mask': False}"]
    assert perplexity(eval_lm(corpus, checkpoint, *WHOLE, *without, *packed)) != alone


PACKED = {"document_mask": True, "position_separators": "</s></s>"}


@pytest.mark.parametrize(
    "name, package, further",
    [
        ("hf-roformer", "transformers", ["--verify"]),
        ("onnx", "onnxruntime", []),
        ("ctranslate2", "ctranslate2", []),
    ],
)
def test_exports_say_that_a_text_is_one_document(name, package, further, request, tmp_path, capsys):
    pytest.importorskip(package, reason="the format needs it")
    if "--verify" in further:
        request.getfixturevalue("transformers")  # one that has PyTorch
    path = trained(tmp_path / "ours", position_encoding="rotary", **PACKED)
    convert("export", name, path, tmp_path / "out", *further)
    assert "the exported model takes each text for one document" in capsys.readouterr().out
