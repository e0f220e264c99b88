"""Scripts of recipes while they run: signals, locks, dry runs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import is_running, until

ROOT = Path(__file__).resolve().parents[2]
HEAD = """#!/usr/bin/env bash
# Title.
#
#   script.sh [options]
#
#   --wait                wait for another process
#   --seed N              seed (1)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
. "{root}/examples/common/steps.sh"
parse "$@"
"""
# A command with a child in a session of its own, a grandchild, and one that ignores INT.
FAMILY = """
import os, signal, subprocess, sys, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_IGN)
children = [
    subprocess.Popen(["sleep", "60"], start_new_session=True),
    subprocess.Popen(["bash", "-c", "sleep 60 & echo $! >below.new; mv below{.new,}; wait"]),
]
while not Path("below").exists():
    time.sleep(0.01)
pids = [os.getpid(), *(child.pid for child in children), int(Path("below").read_text())]
Path("family.new").write_text(" ".join(map(str, pids)))
os.rename("family.new", "family")
time.sleep(60)
"""
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def script(cwd, body):
    path = cwd / "script.sh"
    path.unlink(missing_ok=True)  # bash may still be reading the one before
    path.write_text(HEAD.format(root=ROOT) + body + "\n")
    return path


def variables():
    path = [os.path.dirname(sys.executable), os.environ["PATH"]]
    own = ("FAIRSEQ_POSENC_", "ALONE")
    outside = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    return {**outside, "PATH": os.pathsep.join(path)}


def start(cwd, body, *words):
    """Start a script of which a shell takes the signals, as a terminal's would."""

    def take_signals():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        ["bash", str(script(cwd, body)), *words],
        cwd=cwd,
        env=variables(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_signals,
    )


def shell(cwd, body, *words):
    return subprocess.run(
        ["bash", str(script(cwd, body)), *words],
        cwd=cwd,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def family(tmp_path):
    """A program with children; those that a test leaves are killed."""
    program = tmp_path / "family.py"
    program.write_text(FAMILY)
    yield f"{sys.executable} {program}"
    if (tmp_path / "family").exists():
        for pid in filter(is_running, map(int, (tmp_path / "family").read_text().split())):
            os.kill(pid, signal.SIGKILL)


BODIES = {
    "run": "run {command}",
    "step": "step one --outputs out/a -- {command}",
    "pipeline": "piped() {{ {command} | cat; }}\npiped",
    "nested": "step one -- bash -c '{command}; true'",
}


@pytest.mark.parametrize(
    "form, number",
    [("step", number) for number in SIGNALS]
    + [(form, signal.SIGTERM) for form in ("run", "pipeline", "nested")],
)
def test_a_signal_ends_all_that_a_script_started(tmp_path, family, form, number):
    running = start(tmp_path, f"alone out\n{BODIES[form].format(command=family)}\ntouch after")
    until((tmp_path / "family").exists)
    running.send_signal(number)
    assert running.wait(timeout=20) == 128 + number
    pids = [int(pid) for pid in (tmp_path / "family").read_text().split()]
    assert len(pids) == 4 and not any(map(is_running, pids))
    assert not (tmp_path / "after").exists() and not (tmp_path / "out" / "steps").exists()
    said = running.stderr.read()
    assert said.count(f"stopped by {signal.Signals(number).name}; start it again to go on") == 1
    running.stderr.close()


def test_a_second_start_names_the_process_that_is_at_work(tmp_path, family):
    body = "alone out\nrun"
    first = start(tmp_path, f"{body} {family}")
    until((tmp_path / "family").exists)
    second = shell(tmp_path, f"{body} touch second")
    assert second.returncode == 1 and second.stderr.count("\n") == 1
    assert f"out: process {first.pid} on " in second.stderr
    assert "script.sh is at work there" in second.stderr
    # another folder is free; a dry run asks for nothing
    assert shell(tmp_path, "alone other\nstep one -- true").returncode == 0
    assert shell(tmp_path, "alone out\nalone dry", "--dry-run").returncode == 0
    assert not (tmp_path / "dry").exists()
    # killed, it leaves its children; they are named, and keep the folder
    first.kill()
    first.wait()
    pid = (tmp_path / "family").read_text().split()[0]
    second = shell(tmp_path, f"{body} touch second")
    assert f"process {first.pid}" in second.stderr and "killed, left process" in second.stderr
    assert pid in second.stderr
    for pid in left_in(tmp_path):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not left_in(tmp_path))
    assert shell(tmp_path, f"{body} touch second").returncode == 0
    assert (tmp_path / "second").exists()
    first.stderr.close()


def left_in(folder):
    """The processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "cwd") == str(folder) and is_running(path.name):
                found.append(int(path.name))
        except OSError:
            pass
    return found


def test_a_lock_is_waited_for_and_scripts_below_share_it(tmp_path):
    inner = script(tmp_path, "alone out --waits\nstep inner -- touch inner")
    inner.rename(tmp_path / "inner.sh")
    first = start(
        tmp_path, "alone out\nrun bash inner.sh\nuntil [[ -e go ]]; do sleep 0.02; done\ntouch done"
    )
    until((tmp_path / "inner").exists)
    second = start(tmp_path, "alone out --waits\n[[ -e done ]]")
    line = second.stderr.readline()
    assert f"out: waiting for process {first.pid} on " in line and "script.sh" in line
    (tmp_path / "go").touch()
    assert first.wait(timeout=20) == 0 and second.wait(timeout=20) == 0
    for process in (first, second):
        process.stderr.close()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    result = shell(tmp_path, "alone file/run --option OUT")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "file/run: cannot be written to" in result.stderr and "give another OUT" in result.stderr


def test_a_dry_run_prints_the_commands_and_does_nothing(tmp_path):
    body = """
alone out
run touch 'a b'
step one --inputs x --outputs c -- mkdir -p "$(part out/d)" '&&' touch "$(part out/d)"/c
train run data --arch "a b"
"""
    result = shell(tmp_path, body, "--dry-run")
    assert result.returncode == 0 and not result.stderr
    assert result.stdout.splitlines() == [
        "+ touch a\\ b",
        "+ mkdir -p out/.part/d",
        "+ touch out/.part/d/c",
        "+ fairseq-train data --save-dir run --update-epoch-batch-itr True --arch a\\ b",
    ]
    assert os.listdir(tmp_path) == ["script.sh"]


def test_marked_files_are_what_a_step_reads_and_makes(tmp_path):
    (tmp_path / "in").write_text("1")
    step = 'alone .\nstep copy -- cp "<in" ">out"'
    assert shell(tmp_path, step, "--dry-run").stdout == "+ cp in out\n"
    assert "cp in out" in shell(tmp_path, step).stderr
    assert "already done" in shell(tmp_path, step).stderr
    for change in ((tmp_path / "out").unlink, lambda: (tmp_path / "in").write_text("2")):
        change()
        assert "already done" not in shell(tmp_path, step).stderr
        assert (tmp_path / "out").read_text() == (tmp_path / "in").read_text()


def test_a_failing_command_stops_the_script_with_one_line(tmp_path):
    for line in ("run false", "step one -- false"):
        result = shell(tmp_path, f"alone out\n{line}\ntouch after")
        assert result.returncode == 1
        last = result.stderr.strip().split("\n")[-1]
        assert ": error: " in last and "false stopped with status 1" in last
        assert not (tmp_path / "after").exists() and "Traceback" not in result.stderr


def test_given_options_are_passed_on(tmp_path):
    body = 'pass FEW --seed --wait --other; printf "<%s>" "${FEW[@]}"\noptions_of "$0"'
    assert shell(tmp_path, body, "--seed", "3").stdout == "<--seed><3>--wait\n--seed\n"
    assert shell(tmp_path, body, "--wait").stdout.startswith("<--wait>-")
    assert shell(tmp_path, "", "--seed", "x").stderr.startswith("script.sh: error: --seed x: exp")


def test_runs_of_other_data_are_named(tmp_path):
    (tmp_path / "data").mkdir()
    body = """
STEPS=run$SEED
step one --data data --outputs "$STEPS" -- mkdir -p "$STEPS"
fairseq-posenc stale run* --data data
"""
    (tmp_path / "data" / "train.bin").write_text("1")
    assert "other data" not in shell(tmp_path, body).stderr
    (tmp_path / "data" / "train.bin").write_text("2")
    said = shell(tmp_path, body, "--seed", "2").stderr
    assert said.count("is of other data") == 1 and "run1: is of other data than data has" in said


@pytest.mark.slow
def test_what_ignores_a_signal_is_killed(tmp_path):
    """A script is told to end and given ten seconds before it is killed."""
    stubborn = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('on', 'w'); time.sleep(60)"
    )
    running = start(tmp_path, f'alone out\nrun {sys.executable} -c "{stubborn}"')
    until((tmp_path / "on").exists)
    running.terminate()
    assert running.wait(timeout=30) == 143
    running.stderr.close()


def test_a_killed_command_is_named(tmp_path):
    message = shell(tmp_path, "run bash -c 'kill -KILL $$'").stderr
    assert "bash was killed" in message and "memory" in message


def test_a_folder_is_the_same_by_each_of_its_names(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    body = "alone run\nfairseq-posenc alone link -- touch one\n"
    body += "fairseq-posenc alone ./run/../run -- touch two"
    assert shell(tmp_path, body).returncode == 0 and (tmp_path / "two").exists()


@pytest.mark.parametrize("path", ["a", "a/", "a//", "./a/"])
def test_an_absolute_path_has_no_slash_at_its_end(tmp_path, path):
    printed = shell(tmp_path, f"absolute {path}; absolute {tmp_path}/a/; absolute /").stdout
    assert os.path.normpath(printed[: -len(f"{tmp_path}/a/")]) == f"{tmp_path}/a"
    assert printed.endswith(f"a{tmp_path}/a/")
