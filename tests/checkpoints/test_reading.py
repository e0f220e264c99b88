"""Reading and writing checkpoints: accepted files, refused files, and the messages."""

import argparse
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints import restricted
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.checkpoints.restricted import encode_latin1

pytestmark = pytest.mark.refusals

NAMED = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")


@pytest.fixture(params=["PyTorch's reader", "reader for PyTorch before 2.6"])
def reader(request, monkeypatch):
    """Run a test with PyTorch's reader, if it has an allow-list, and with our own reader."""
    own = request.param != "PyTorch's reader"
    if not own and not NAMED:
        pytest.skip("torch.load of this PyTorch has no allow-list with names")
    monkeypatch.setattr(restricted, "_HAS_NAMED_SAFE_GLOBALS", not own)


def fairseq_state():
    """A small checkpoint such as fairseq-train --eval-bleu saves."""
    embedding = torch.arange(6.0).reshape(3, 2)
    return {
        "args": None,
        "cfg": {"_name": None, "model": argparse.Namespace(arch="transformer", dropout=0.1)},
        "model": {
            "encoder.embed_tokens.weight": embedding,
            "decoder.embed_tokens.weight": embedding,
            "half": torch.tensor([0.5, -0.0]).half(),
            "bfloat16": torch.tensor([0.5, -2.0]).bfloat16(),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "version": torch.tensor([3]),
        },
        "criterion": None,
        "optimizer_history": [{"num_updates": 5, "lr_scheduler_state": {"best": None}}],
        "task_state": {},
        "extra_state": {"metrics": [("bleu", np.arange(4)), ("sys_len", np.int64(7).reshape(1))]},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(2)}}},
    }


def save(thing, path, **kwargs):
    torch.save(thing, str(path), **kwargs)
    return path


def pickle_in(path):
    with zipfile.ZipFile(str(path)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        return archive.read(name)


@pytest.mark.parametrize("zipped", [True, False])
def test_reads_what_fairseq_writes(tmp_path, reader, zipped):
    state = fairseq_state()
    path = save(state, tmp_path / "checkpoint.pt", _use_new_zipfile_serialization=zipped)
    read = read_checkpoint(path)
    assert read.keys() == state.keys()
    assert read["cfg"]["model"] == state["cfg"]["model"]
    for key, value in state["model"].items():
        assert read["model"][key].dtype == value.dtype and torch.equal(read["model"][key], value)
    embeddings = [read["model"][f"{part}coder.embed_tokens.weight"] for part in ("en", "de")]
    assert embeddings[0].data_ptr() == embeddings[1].data_ptr()
    (_, counts), (_, length) = read["extra_state"]["metrics"]
    assert counts.tolist() == [0, 1, 2, 3] and length.tolist() == [7]


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_reads_arrays_of_either_numpy(tmp_path, reader, module):
    path = save(fairseq_state(), tmp_path / "here.pt")
    there = tmp_path / "there.pt"
    with zipfile.ZipFile(str(path)) as old, zipfile.ZipFile(str(there), "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("data.pkl"):
                assert b"multiarray" in data
                data = data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
                data = data.replace(b"numpy.core.multiarray", module)
            new.writestr(name, data)
    assert b"c" + module in pickle_in(there)
    (_, counts), _ = read_checkpoint(there)["extra_state"]["metrics"]
    assert counts.tolist() == [0, 1, 2, 3]


class Calls:
    """An object whose pickle, when loaded, calls a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "function, name", [(os.system, f"{os.system.__module__}.system"), (eval, "eval")]
)
def test_refuses_code_by_name_and_does_not_run_it(tmp_path, reader, zipped, function, name):
    trace = tmp_path / "ran"
    command = {"eval": f"open({str(trace)!r}, 'w')"}.get(function.__name__, f"touch {trace}")
    state = dict(fairseq_state(), extra_state={"x": Calls(function, command)})
    path = save(state, tmp_path / "evil.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UsageError) as error:
        read_checkpoint(path)
    assert str(path) in str(error.value) and name in str(error.value)
    assert "weights_only=False" in str(error.value)
    assert not trace.exists()
    torch.load(str(path), **({"weights_only": False} if NAMED else {}))
    assert trace.exists(), "the file would not have run anything"


@pytest.mark.parametrize("name", ["torch.hub.load", "torch.storage._load_from_bytes"])
def test_reader_for_older_pytorch_allows_only_tensors_of_torch(tmp_path, monkeypatch, name):
    monkeypatch.setattr(restricted, "_HAS_NAMED_SAFE_GLOBALS", False)
    module, _, attribute = name.rpartition(".")
    function = getattr(__import__(module, fromlist=["x"]), attribute)
    path = save(dict(fairseq_state(), task_state=Calls(function, b"")), tmp_path / "evil.pt")
    with pytest.raises(UsageError, match=name):
        read_checkpoint(path)
    with pytest.raises(pickle.UnpicklingError, match="zip"):
        encode_latin1("x", "zip")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.99])
def test_truncated(tmp_path, reader, zipped, share):
    path = save(fairseq_state(), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UsageError, match="truncated or damaged") as error:
        read_checkpoint(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("where", ["model", "settings", "directory"])
def test_a_flipped_byte_is_refused(tmp_path, reader, where):
    state = dict(fairseq_state(), model={"weight": torch.arange(1000.0)})
    path = save(state, tmp_path / "a.pt")
    content = bytearray(path.read_bytes())
    wanted = {
        "model": torch.arange(500.0, 510.0).numpy().tobytes(),
        "settings": b"optimizer_history",
        "directory": b"PK\x01\x02",
    }
    content[content.index(wanted[where]) + 2] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(UsageError, match="damaged") as error:
        read_checkpoint(path)
    assert str(path) in str(error.value)
    if where == "model":
        assert "checksum of its part data/" in str(error.value)
        lazily = read_checkpoint(path, lazy=True)["model"]["weight"]
        assert not torch.equal(lazily, state["model"]["weight"])


def test_files_without_checksums_are_read(tmp_path, reader):
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("this PyTorch always writes checksums")
    torch.serialization.set_crc32_options(False)
    try:
        path = save(fairseq_state(), tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_checkpoint(path)["model"].keys() == fairseq_state()["model"].keys()


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and not much more"])
def test_the_newest_checkpoint_is_named_beside_a_damaged_one(tmp_path, damage):
    for age, name in enumerate(("checkpoint1.pt", "checkpoint_2_7.pt", "other.pt")):
        save(fairseq_state(), tmp_path / name)
        os.utime(str(tmp_path / name), (1000 + age, 1000 + age))
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(damage)
    with pytest.raises(UsageError, match="such as .*/checkpoint_2_7.pt, or copy the file again"):
        read_checkpoint(last)


def write_zip(path):
    with zipfile.ZipFile(str(path), "w") as archive:
        archive.writestr("readme.txt", "hello")


ONE = {"encoder.weight": torch.ones(1)}
#: functions that write something other than a checkpoint, and the pattern of the refusal
WRONG = {
    "missing": (lambda path: path.with_name("checkpoint_last.pt").touch(),
                "No such file.* contains checkpoint_last.pt"),
    "folder": (lambda path: (path / "checkpoint_best.pt").mkdir(parents=True),
               "Is a directory.* contains checkpoint_best.pt"),
    "empty": (lambda path: path.touch(), "is empty"),
    "text": (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"),
             "not a PyTorch checkpoint.*b'vers'"),
    "archive": (write_zip, "zip archive or .*, not a checkpoint"),
    "script": (lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(path)),
               "TorchScript model, not a checkpoint"),
    "weights": (lambda path: save(ONE, path), "no 'model' .its entries: encoder.weight"),
    "no settings": (lambda path: save({"model": ONE, "cfg": None, "args": None}, path),
                    "no 'cfg'"),
    "list": (lambda path: save(list(ONE.values()), path), "holds a list"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_says_what_is_wrong_in_one_line(tmp_path, reader, case):
    path, (make, says) = tmp_path / "model.pt", WRONG[case]
    make(path)
    with pytest.raises(UsageError, match=says) as error:
        read_checkpoint(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_writes_whole_files_only(tmp_path):
    path = tmp_path / "out.pt"
    write_checkpoint(fairseq_state(), path)
    before = path.read_bytes()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        write_checkpoint({"model": torch.ones(99), "not picklable": lambda: 0}, path)
    for nowhere in (tmp_path / "no" / "folder" / "out.pt", tmp_path):
        with pytest.raises(UsageError, match=str(nowhere)):
            write_checkpoint(fairseq_state(), nowhere)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.pt"]
