"""--document-mask through fairseq's commands: the perplexity is that of each document alone."""

import pytest
from support.toy_lm import eval_lm, perplexity, train_lm

pytest_plugins = ("support.toy", "support.toy_lm")
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
