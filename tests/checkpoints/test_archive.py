"""A damaged last checkpoint is replaced by the newest whole one."""

import os
import shutil
from argparse import Namespace

import torch

from fairseq_posenc.checkpoints.archive import numbered, recover_last
from fairseq_posenc.checkpoints.reading import read_checkpoint


def test_the_newest_whole_checkpoint_takes_the_place_of_a_damaged_one(tmp_path, capsys):
    for number in (1, 2, 3):
        state = {"model": {"weight": torch.tensor(number)}, "args": Namespace(arch="transformer")}
        torch.save(state, tmp_path / f"checkpoint{number}.pt")
    shutil.copy(tmp_path / "checkpoint3.pt", tmp_path / "checkpoint_last.pt")
    recover_last(str(tmp_path))
    assert not capsys.readouterr().err
    for name in ("checkpoint_last.pt", "checkpoint3.pt"):
        os.truncate(tmp_path / name, (tmp_path / name).stat().st_size // 2)
    half = (tmp_path / "checkpoint_last.pt").read_bytes()
    recover_last(str(tmp_path))
    assert "checkpoint_last.damaged.pt; going on from checkpoint2.pt" in capsys.readouterr().err
    assert (tmp_path / "checkpoint_last.damaged.pt").read_bytes() == half
    assert read_checkpoint(str(tmp_path / "checkpoint_last.pt"))["model"]["weight"] == 2


def test_the_newest_comes_first_and_without_a_whole_one_nothing_is_done(tmp_path):
    names = ["checkpoint1.pt", "checkpoint_1_5.pt", "checkpoint_2_900.pt", "checkpoint10.pt"]
    names += ["checkpoint_10_4000.pt", "checkpoint_11_4100.pt"]
    for name in [*names, "checkpoint_best.pt", "checkpoint.best_loss_1.pt", "average5.pt"]:
        (tmp_path / name).touch()
    assert list(numbered(str(tmp_path))) == [
        *("checkpoint_11_4100.pt", "checkpoint10.pt", "checkpoint_10_4000.pt"),
        *("checkpoint_2_900.pt", "checkpoint1.pt", "checkpoint_1_5.pt"),
    ]
    recover_last(str(tmp_path))
    (tmp_path / "checkpoint_last.pt").write_bytes(b"half")
    recover_last(str(tmp_path))
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == b"half"
    assert not (tmp_path / "checkpoint_last.damaged.pt").exists()
