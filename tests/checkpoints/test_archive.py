"""Where a checkpoint is damaged, the message names the newest whole one beside it."""

import os
import shutil
from argparse import Namespace

import pytest
import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.archive import numbered
from fairseq_posenc.checkpoints.reading import read_checkpoint


def test_the_newest_whole_checkpoint_is_named(tmp_path):
    for number in (1, 2, 3):
        state = {"model": {"weight": torch.tensor(number)}, "args": Namespace(arch="transformer")}
        torch.save(state, tmp_path / f"checkpoint{number}.pt")
    last = tmp_path / "checkpoint_last.pt"
    shutil.copy(tmp_path / "checkpoint3.pt", last)
    for path in (last, tmp_path / "checkpoint3.pt"):
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(UsageError) as error:
        read_checkpoint(str(last))
    assert f"to go on from it: cp {tmp_path / 'checkpoint2.pt'} {last}" in str(error.value)


def test_the_newest_comes_first(tmp_path):
    names = ["checkpoint1.pt", "checkpoint_1_5.pt", "checkpoint_2_900.pt", "checkpoint10.pt"]
    names += ["checkpoint_10_4000.pt", "checkpoint_11_4100.pt"]
    for name in [*names, "checkpoint_best.pt", "checkpoint.best_loss_1.pt", "average5.pt"]:
        (tmp_path / name).touch()
    assert list(numbered(str(tmp_path))) == [
        *("checkpoint_11_4100.pt", "checkpoint10.pt", "checkpoint_10_4000.pt"),
        *("checkpoint_2_900.pt", "checkpoint1.pt", "checkpoint_1_5.pt"),
    ]
