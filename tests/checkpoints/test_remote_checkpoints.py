"""Checkpoints at an address that fairseq's PathManager fetches, such as ``s3://``."""

import pytest
from fairseq.file_io import PathManager
from support.commands import ROOT, SMALL, TRAINING, read, run, succeed

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints import inherit

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

STORE = """
import os
from fairseq.file_io import PathManager

def local(path, **kwargs):
    return path.replace("mem://", os.environ["STORE"] + "/")

PathManager.get_local_path = staticmethod(local)
PathManager.isfile = staticmethod(lambda path: os.path.isfile(local(path)))
PathManager.exists = staticmethod(lambda path: os.path.exists(local(path)))
import fairseq_posenc
"""


def test_training_starts_from_a_remote_checkpoint(toy, trained, tmp_path, monkeypatch):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text(STORE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STORE", str(trained))
    flags = [toy.separate, "--user-dir", tmp_path / "store", *TRAINING, "--arch", "roformer_tiny"]
    flags += [*SMALL, "--save-dir", tmp_path / "run", "--finetune-from-model"]
    finished = succeed("train", *flags, "mem://checkpoint_last.pt", "--max-update", 1)
    assert "mem://checkpoint_last.pt" in finished.out + finished.err
    assert read(tmp_path / "run" / "checkpoint_last.pt")
    message = run("train", *flags, "mem://none.pt", "--save-dir", tmp_path / "new").message()
    assert "--finetune-from-model mem://none.pt: no such file" in message


def test_fine_tuning_reads_the_settings_of_a_remote_checkpoint(trained, monkeypatch):
    monkeypatch.setattr(PathManager, "isfile", lambda path: path.startswith("mem://"))
    local = str(trained / "checkpoint_last.pt")
    monkeypatch.setattr(PathManager, "get_local_path", lambda path: local)
    with pytest.raises(UsageError, match="mem://x.pt: is not a masked language model"):
        inherit._settings_of("--finetune-from-model", "mem://x.pt")
