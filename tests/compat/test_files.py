"""Files that fairseq writes: complete or absent, whenever writing fails."""

import io
import os
import shutil
from pathlib import Path

import pytest
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_posenc.basics.errors import UsageError


def test_a_checkpoint_is_replaced_when_the_next_is_complete(tmp_path, monkeypatch):
    path, copy = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    (tmp_path / "checkpoint1.pt.tmp").write_text("of a killed run without the plug-in")
    checkpoint_utils.torch_persistent_save({"number": 1}, str(path))
    assert PathManager.copy(str(path), str(copy), overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]
    before = copy.read_bytes()
    assert before == path.read_bytes()

    def half(source, target):
        Path(target).write_bytes(before[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", half)
    with pytest.raises(UsageError, match="checkpoint_last.pt: cannot be written .No space left"):
        PathManager.copy(str(path), str(copy), overwrite=True)
    assert copy.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["checkpoint1.pt", "checkpoint_last.pt"]


def test_other_places_than_files_are_left_to_fairseq(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(shutil, "copyfile", lambda *paths: seen.append(paths) or "copied")
    for source, target in (("a", "s3://b"), ("s3://a", "b")):
        assert PathManager.copy(source, target, overwrite=True) == "copied"
    assert seen == [("a", "s3://b"), ("s3://a", "b")]
    buffer = io.BytesIO()
    with pytest.raises(TypeError):  # as in stock
        checkpoint_utils.torch_persistent_save({"number": 1}, buffer)
