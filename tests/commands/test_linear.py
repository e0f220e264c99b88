"""Models with linear attention through fairseq's command lines."""

import pytest
import torch
from support.commands import generate, read, train
from support.helpers import TINY, build, skip_without_cpu_kernels
from support.linear_layers import PERFORMER, projections

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
