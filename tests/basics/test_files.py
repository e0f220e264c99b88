"""Written files are complete or absent; pipes, devices and folders are not replaced."""

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, new_folder, replace_file, staging

pytestmark = pytest.mark.properties


def write(path, text="new", flag=""):
    with replace_file(path, flag) as partial:
        partial.write_text(text)


def test_a_file_gets_its_name_at_the_end(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as partial:
        partial.write_text("ne")
        1 / 0  # noqa: B018
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out"]
    with replace_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old" and partial.parent == tmp_path
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_one_line_however_it_shows(tmp_path):
    def torch_does():
        try:
            raise OSError(28, "No space left on device")
        finally:
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64")

    with pytest.raises(UsageError, match="No space left on device"), replace_file(tmp_path / "out"):
        torch_does()
    with pytest.raises(RuntimeError, match="another"), replace_file(tmp_path / "out"):
        raise RuntimeError("another")


def copied(inside):
    """Raise an error like that of shutil.copyfile, which names the source before the target."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "source", None, str(inside / "target"))


def written(inside):
    with replace_file(inside / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def saved(inside):
    raise Exception("No space left on device (os error 28)")  # as packages in Rust do


@pytest.mark.parametrize("folder", [new_folder, staging])
@pytest.mark.parametrize("fails", [copied, written, saved])
def test_a_full_disk_is_that_of_the_folder_which_the_user_gave(folder, fails, tmp_path):
    out = str(tmp_path / "out")
    with pytest.raises(UsageError, match="No space left") as caught, folder(out) as inside:
        fails(Path(inside))
    assert f"error: {out}" in str(caught.value)
    assert ".partial" not in str(caught.value) and os.listdir(tmp_path) == []


def test_what_cannot_be_read_into_a_folder_is_named(tmp_path):
    absent, out = tmp_path / "absent", tmp_path / "out"
    with pytest.raises(UsageError, match="absent: No such file"), new_folder(out) as inside:
        shutil.copyfile(absent, os.path.join(inside, "file"))


def test_a_new_file_has_the_usual_permissions_and_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    link = tmp_path / "link"
    link.symlink_to(os.path.join("there", "file"))
    mode = stat.S_IMODE(link.stat().st_mode)
    write(link)
    assert link.is_symlink() and (tmp_path / "there" / "file").read_text() == "new"
    assert stat.S_IMODE(link.stat().st_mode) == mode
    assert os.listdir(tmp_path / "there") == ["file"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(os.devnull)
    for path, words in (
        (tmp_path / "pipe", "is a pipe"),
        (tmp_path / "folder", "is a directory"),
        (tmp_path / "link", "is a device"),
        (os.devnull, "is a device"),
    ):
        for function in (write, check_writable):
            with pytest.raises(UsageError, match=words) as caught:
                function(path, flag="--output")
            assert f"--output {path}: " in str(caught.value)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "no" / "out"
    with pytest.raises(UsageError, match="cannot be written .*No such file"):
        write(path)
    with pytest.raises(UsageError, match="there is no folder .*no; create it first"):
        check_writable(path, "--output")
    assert os.listdir(tmp_path) == []


def ended():
    """The process number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path, monkeypatch):
    number, host = ended(), socket.gethostname()
    kept = ["other", ".other", f".out.{host}.{os.getppid()}.partial", f".out.far.{number}.partial"]
    kept += [f".out2.{host}.{number}.partial"]
    for name in (*kept, f".out.{host}.{number}.partial"):
        (tmp_path / name).write_text("half")
    write(tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "out"])


def test_a_conversion_removes_the_folder_of_a_killed_one(tmp_path):
    with staging(str(tmp_path)) as folder:
        prefix = Path(folder).name.rpartition(f"{os.getpid()}.partial")[0]
        (Path(folder) / "config.json").write_text("{}")
        left = tmp_path / f"{prefix}{ended()}.partial"
        left.mkdir()
        (left / "config.json").write_text("{")
    with staging(str(tmp_path)):
        pass
    assert os.listdir(tmp_path) == ["config.json"]
