"""The range of random positions is part of a model that spreads them in evaluation."""

from argparse import Namespace

import pytest
import torch
from omegaconf import OmegaConf
from support.helpers import parse

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import settings_to_match
from fairseq_posenc.checkpoints.inherit import inherit
from fairseq_posenc.checkpoints.overrides import apply_overrides
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.resuming import check_settings_of
from fairseq_posenc.models import FAMILIES
from tests.configuration.test_roles import checkpoint_of

MASKED_LM = FAMILIES["posenc_masked_lm"]


def spread(number, evaluation="spread"):
    """A masked language model trained with random positions below *number*."""
    given = ["--random-positions", str(number), "--evaluation-positions", evaluation]
    return parse("roformer_masked_lm_tiny", *given, task="masked_lm")


def test_the_range_of_random_positions_is_part_of_a_model_that_spreads_them():
    counted, other = {"evaluation_positions": "counted"}, {"random_positions": 32}

    def overridden(cfg, **overrides):
        state = {"cfg": OmegaConf.create({"task": {}, "model": checkpoint_of(cfg)["cfg"]["model"]})}
        apply_overrides(state, overrides, "x.pt")

    for cfg in (spread(64), spread(64, "counted")):
        overridden(cfg, **counted, **other)  # matters in training only
        overridden(cfg, evaluation_positions="spread", random_positions=64)
        with pytest.raises(UsageError, match="random_positions=32: x.pt was trained with 64"):
            overridden(cfg, evaluation_positions="spread", **other)
    with pytest.raises(UsageError, match="random_positions=32: x.pt was trained with 64"):
        overridden(spread(64), **other)
    trained = ((64, "spread"), (32, "spread"), (64, "counted"), (32, "counted"))
    compared = [settings_to_match(checkpoint_of(spread(*each))) for each in trained]
    assert compared[0] != compared[1] and compared[2] == compared[3]


def test_spread_positions_are_resumed_and_fine_tuned_with_their_range(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    torch.save(checkpoint_of(spread(64)), path)
    with pytest.raises(UsageError, match="--random-positions 32: .* was trained with 64; give ano"):
        check_settings_of(str(path), read_checkpoint(path), spread(32), resumes=True)
    check_settings_of(str(path), read_checkpoint(path), spread(32, "counted"), resumes=True)
    for given, inherited in ({}, 64), ({"evaluation_positions": "counted"}, None):
        args = Namespace(task="sentence_prediction", finetune_from_model=str(path), **given)
        inherit(args, MASKED_LM.dataclass, MASKED_LM.model, {})
        assert getattr(args, "random_positions", None) == inherited
