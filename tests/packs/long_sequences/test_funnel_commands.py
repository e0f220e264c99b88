"""Funnel encoders through fairseq's command lines."""

import torch
from support.commands import read, train
from support.masked_lm_runs import CLASSIFY, MASKED, SHAPE

from fairseq_posenc.models.masked_lm import MODEL

pytest_plugins = ["support.toy", "support.masked_lm_runs"]


def test_a_funnel_encoder_is_pretrained_and_fine_tuned(corpora, tmp_path):
    """A preset's number of layers gives way to that of the stages."""
    flags = ["--arch", "transformer_xl_masked_lm_base", "--funnel-stages", "1,1,1"]
    train(corpora.text, tmp_path / "pre", *flags, *SHAPE[2:], *MASKED)
    source = ["--finetune-from-model", tmp_path / "pre" / "checkpoint_last.pt"]
    flags = ["--arch", MODEL, *CLASSIFY, "--num-classes", "2", *source]
    assert "valid 1" in train(corpora.pairs, tmp_path / "fine", *flags).losses()
    after, settings = read(tmp_path / "fine" / "checkpoint_last.pt")
    assert (settings["funnel_stages"], settings["encoder_layers"]) == ("1,1,1", 5)
    before, _ = read(tmp_path / "pre" / "checkpoint_last.pt")
    weights = [f"encoder.sentence_encoder.layers.{i}.fc1.weight" for i in range(5)]
    same = [torch.equal(before[name], after[name]) for name in weights]
    assert same == [False, False, False, True, True]  # the decoder is not used
