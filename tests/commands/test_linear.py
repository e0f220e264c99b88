"""Models with linear attention through fairseq's command lines."""

import pytest
import torch
from support import masked_lm_runs as masked_lm
from support.commands import generate, read, refusal, train
from support.helpers import TINY, build, skip_without_cpu_kernels
from support.linear_layers import PERFORMER, projections
from support.warm_starts import FRESH

from fairseq_posenc.attention.linear.random_features import orthogonal_rows
from fairseq_posenc.models.masked_lm import MODEL
from tests.commands.test_distributed import train_together

pytest_plugins = ["support.toy", "support.masked_lm_runs"]
pytestmark = pytest.mark.journeys


def test_resuming_with_redraws_changes_no_loss(toy, tmp_path):
    """Stopped at an update at which they are due, and at one at which they are not."""
    flags = [*PERFORMER, "--favor-redraw", "3", "--update-epoch-batch-itr", "True"]
    flags += ["--max-epoch", "2"]
    whole = train(toy.separate, tmp_path / "whole", *flags).losses()
    still = train(toy.separate, tmp_path / "still", *flags, "--favor-redraw", "0").losses()
    assert whole["update 3"] == still["update 3"] and whole["update 4"] != still["update 4"]
    in_parts = {}
    for updates in ("3", "5", "0"):
        run = train(toy.separate, tmp_path / "parts", *flags, "--max-update", updates)
        in_parts.update({k: v for k, v in run.losses().items() if k.startswith("update")})
    assert in_parts == {k: v for k, v in whole.items() if k.startswith("update")}


def test_two_processes_draw_the_same(toy, tmp_path):
    flags = [*PERFORMER, "--favor-redraw", "2", "--dropout", "0", "--batch-size", "6"]
    flags += ["--update-epoch-batch-itr", "True"]
    alone = train(toy.separate, tmp_path / "one", *flags, "--update-freq", "2").losses()
    together = train_together(toy.separate, tmp_path / "two", *flags)
    assert together.losses() == pytest.approx(alone, abs=2e-3)
    one, two = (read(tmp_path / name / "checkpoint_last.pt")[0] for name in ("one", "two"))
    assert projections(one) and all(
        torch.equal(value, two[key]) for key, value in projections(one).items()
    )


def test_half_precision(toy, tmp_path):
    skip_without_cpu_kernels(torch.float16)
    train(toy.separate, tmp_path, *PERFORMER, "--memory-efficient-fp16")
    parameters, _ = read(tmp_path / "checkpoint_last.pt")
    exact = projections(build("performer_tiny", *TINY, "--encoder-embed-dim", "16",
                              "--encoder-attention-heads", "2").state_dict())  # fmt: skip
    key = "encoder.layers.0.self_attn.feature_map.projection"
    assert torch.equal(parameters[key], exact[key])  # no bit was rounded away
    found = generate(toy.separate, tmp_path / "checkpoint_last.pt", "--fp16").hypotheses()
    assert len(found) == 24


def test_attention_and_random_features_come_from_the_checkpoint(corpora, tmp_path):
    pre = tmp_path / "pre"
    arch = "performer_masked_lm_tiny"
    masked_lm.pretrain(corpora.text, pre, arch, "--favor-redraw", "2")
    source = ["--restore-file", pre / "checkpoint_last.pt", *FRESH]
    flags = ["--arch", MODEL, *masked_lm.CLASSIFY, "--num-classes", "2", *source]
    train(corpora.pairs, tmp_path / "fine", *flags)
    (before, _), (after, settings) = (
        read(tmp_path / name / "checkpoint_last.pt") for name in ("pre", "fine")
    )
    assert (settings["attention"], settings["favor_redraw"]) == ("favor", 0)
    assert projections(before)
    key = "encoder.sentence_encoder.layers.0.self_attn.feature_map.projection"
    fresh = orthogonal_rows(*before[key].shape, "1 encoder 0 0").float()
    assert not torch.equal(before[key], fresh)  # redrawn
    assert all(torch.equal(after[key], value) for key, value in projections(before).items())
    message = refusal(corpora.pairs, tmp_path / "other", *flags, "--attention", "softmax")
    assert "--attention softmax: --restore-file" in message
