"""Trainings go on in their folders, and are refused with other data or flags."""

import os
import shlex
from pathlib import Path

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.markers import TRAINING_FILES, digest_of
from fairseq_posenc.steps.step import Step
from fairseq_posenc.steps.training import train

TRAIN = """#!/usr/bin/env bash
echo "$*" >>calls
while (($#)); do
    case $1 in
        --save-dir) folder=$2 ;;
        --log-file) log=$2 ;;
        --max-update) updates=$2 ;;
    esac
    shift
done
echo "num. shared model params: 1" >>"$log"
echo "num_updates=$updates" >>"$log"
touch "$folder/checkpoint_1_5.pt"
[[ ! -e stop ]] || exit 1
touch "$folder/checkpoint_last.pt"
[[ ! -e late ]] || echo "cumulative_training_time: 2 > stop_time_hours: 1 hour(s)" >>"$log"
echo "done training in 1 s" >>"$log"
"""
BASE = "--arch transformer --lr 1e-3 --max-tokens 100 --update-freq 4 --distributed-world-size 1"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "fairseq-train"
    program.parent.mkdir()
    program.write_text(TRAIN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "data").mkdir()
    for name in ("dict.txt", "train.bin", "valid.bin", "test.bin"):
        (tmp_path / "data" / name).write_text(name)


def begin(updates=100, flags=BASE, follows=False, repair=lambda folder: None, **more):
    """Train; returns the updates that were trained to."""
    digest_of.cache_clear()
    words = ["fairseq-train", "data", "--save-dir", "run", "--log-file", "run/train.log"]
    words += shlex.split(flags) + ["--max-update", str(updates)]
    step = Step("train", Path("run"), words, [("data", TRAINING_FILES)], option="--save-dir")
    step = step._replace(outputs=["run/checkpoint_last.pt"], **more)
    Path("calls").write_text("")
    train(step, repair, follows=follows)
    return [int(line.split()[-1]) for line in Path("calls").read_text().splitlines()]


def times():
    files = (path for path in Path("run").rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.stat().st_mtime_ns for path in files}


def test_a_training_that_is_over_is_not_repeated_and_a_longer_one_goes_on():
    assert begin() == [100]
    assert begin() == begin(50) == []
    assert begin(200) == [200]
    assert begin(200) == begin(100) == []


def test_a_training_that_ran_out_of_time_goes_on():
    Path("late").touch()
    assert begin(flags=f"{BASE} --stop-time-hours 1") == [100]
    Path("late").unlink()
    assert begin(flags=f"{BASE} --stop-time-hours 2") == [100]
    assert begin(flags=f"{BASE} --stop-time-hours 3") == begin() == []


def test_more_inputs_than_before_are_refused():
    begin()
    with pytest.raises(UsageError, match="was begun with 1 inputs, and not 2; give another"):
        begin(inputs=[("data", TRAINING_FILES), ("bin", ("*",))])


def test_an_interrupted_training_goes_on(tmp_path):
    Path("stop").touch()
    with pytest.raises(UsageError, match="fairseq-train stopped with status 1"):
        begin()
    Path("stop").unlink()
    Path("run/checkpoint_2_9.pt.tmp").touch()
    assert begin() == [100]
    assert not Path("run/checkpoint_2_9.pt.tmp").exists()
    # a longer one that was interrupted
    Path("stop").touch()
    with pytest.raises(UsageError):
        begin(200)
    Path("stop").unlink()
    assert begin(100) == [] and begin(200) == [200]
    # without its last checkpoint, a log is that of another training
    for path in Path("run").glob("checkpoint*"):
        path.unlink()
    assert begin(200) == [200]
    assert Path("run/train.log").read_text().count("done training") == 1


@pytest.mark.parametrize("when", ["begun", "done"])
def test_other_data_or_flags_are_refused_before_anything_is_touched(when):
    if when == "begun":
        Path("stop").touch()
        with pytest.raises(UsageError):
            begin()
        Path("stop").unlink()
    else:
        begin()
    before = times()
    other = "run was begun with --lr 1e-3, and not with --lr 2e-3; give another --save-dir"
    with pytest.raises(UsageError, match=other):
        begin(flags=BASE.replace("1e-3", "2e-3"))
    with pytest.raises(UsageError, match="begun without --fp16, and not with --fp16"):
        begin(flags=f"{BASE} --fp16")
    with pytest.raises(
        UsageError, match="begun with --update-freq 4, and not with --update-freq 8"
    ):
        begin(flags=BASE.replace("freq 4", "freq 8"))
    Path("data/train.bin").write_text("another")
    with pytest.raises(UsageError, match="begun with other data than data has now; give another"):
        begin()
    Path("data/train.bin").write_text("train.bin")
    assert before == times()
    assert begin() == ([] if when == "done" else [100])


@pytest.mark.parametrize(
    "was, now",
    [
        ("--lr 1e-3", "--lr=1e-3"),
        ("freq 4 --distributed-world-size 1", "freq 1 --distributed-world-size 4"),
        ("--max-tokens 100 --update-freq 4", "--max-tokens 50 --update-freq 8"),
        ("--arch", "--distributed-init-method tcp://localhost:1 --log-interval 3 --cpu --arch"),
    ],
)
def test_where_it_runs_and_what_it_logs_may_change(was, now):
    begin()
    assert begin(200, BASE.replace(was, now)) == [200]


def test_test_sets_may_change_and_nothing_is_known_before_the_first_checkpoint():
    begin()
    Path("data/test.bin").write_text("another")
    assert begin() == []
    for path in Path("run").glob("checkpoint*"):
        path.unlink()
    Path("data/train.bin").write_text("another")
    assert begin(flags=BASE.replace("1e-3", "2e-3")) == [100]


@pytest.mark.parametrize("file", ["command", "train.log", "checkpoint_last.pt"])
def test_a_training_of_an_earlier_version_goes_on_unless_the_data_are_newer(file):
    os.mkdir("run")
    for name in ("checkpoint_last.pt", "command"):
        Path("run", name).touch()
    Path("run/train.log").write_text("num_updates=100\ndone training in 1 s\n")
    os.utime(f"run/{file}", (1, 1))
    with pytest.raises(UsageError, match="run is of an earlier version.*another --save-dir.*touch"):
        begin()
    Path("run", file).touch()
    assert begin() == []
    os.utime(f"run/{file}", (1, 1))
    assert begin() == [] and begin(200) == [200]


def test_the_content_of_a_checkpoint_to_begin_with_counts():
    flags = f"{BASE} --finetune-from-model first.pt"
    Path("first.pt").write_text("1")
    begin(flags=flags)
    Path("first.pt").rename("moved.pt")
    assert begin(flags=flags.replace("first", "moved")) == []
    Path("first.pt").write_text("2")
    with pytest.raises(UsageError, match="begun with --finetune-from-model"):
        begin(flags=flags)


def test_another_node_follows():
    assert begin(follows=True, flags="--arch a --log-file nowhere --save-dir .") == [100]
    for path in (".checkpoint_1_5.pt", "checkpoint_1_5.pt", "checkpoint_last.pt"):
        Path(path).unlink(missing_ok=True)
    assert not Path("run").exists()
    begin()
    assert begin(follows=True) == []


def test_a_damaged_checkpoint_is_replaced_first():
    begin()
    asked = []
    begin(200, repair=asked.append)
    assert asked == ["run"]
