"""Scripts of the recipes while they run: signals, locks, killed children."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.recipes import EXAMPLES, assert_error, bash, environment, script, shell

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


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def take_signals():
    """Ignore none of them, as a background job does INT and one of nohup HUP."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def start(body, cwd, **variables):
    """Start a script of which a shell takes the signals, as a terminal's would."""
    return subprocess.Popen(
        ["bash", str(script(body, cwd))],
        cwd=cwd,
        env={**environment(), **variables},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_signals,
    )


@pytest.fixture
def family(tmp_path):
    """A program with children; those that a test leaves are killed."""
    program = tmp_path / "family.py"
    program.write_text(FAMILY)
    yield program
    if (tmp_path / "family").exists():
        for pid in filter(is_running, map(int, (tmp_path / "family").read_text().split())):
            os.kill(pid, signal.SIGKILL)


BODIES = {
    "run": "run {command}",
    "step": "STEPS=steps\nstep one out -- {command}",
    "nested": "run bash -c '. \"$COMMON/lib.sh\"; run {command}'",
    "pipeline": "piped() {{ {command} | cat; }}\ninterruptible piped",
    "timed": "time run {command}",
    "quiet": "interruptible {command} >log 2>&1",
}


@pytest.mark.parametrize(
    "form, number",
    [(form, number) for form in ("run", "nested") for number in SIGNALS]
    + [(form, signal.SIGTERM) for form in ("step", "pipeline", "timed", "quiet")],
)
def test_a_signal_ends_all_that_a_script_started(tmp_path, family, form, number):
    body = "export COMMON\n" + BODIES[form].format(command=f"{sys.executable} {family}")
    running = start(f"{body}\ntouch after", tmp_path)
    until((tmp_path / "family").exists)
    running.send_signal(number)
    assert running.wait(timeout=20) == 128 + number
    pids = [int(pid) for pid in (tmp_path / "family").read_text().split()]
    assert len(pids) == 4 and not any(map(is_running, pids))
    assert not (tmp_path / "after").exists() and not (tmp_path / "steps").exists()
    assert f"stopped by {signal.Signals(number).name}; start it again" in running.stderr.read()
    running.stderr.close()


def test_what_ignores_a_signal_is_killed(tmp_path):
    """And is given ten seconds before that."""
    stubborn = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('on', 'w'); time.sleep(60)"
    )
    body = f'sleep() {{ SECONDS=20; command sleep 0.01; }}\nrun {sys.executable} -c "{stubborn}"'
    running = start(body, tmp_path)
    until((tmp_path / "on").exists)
    begun = time.monotonic()
    running.terminate()
    assert running.wait(timeout=20) == 143
    assert time.monotonic() - begun < 5  # the clock of the script was set forward
    assert "after" not in running.stderr.read()
    running.stderr.close()


def test_a_killed_command_is_named(tmp_path):
    result = shell("run bash -c 'kill -KILL $$'", tmp_path)
    assert_error(result, "bash was killed", "memory")


# --- locks


def test_a_second_start_names_the_process_that_is_at_work(tmp_path, family):
    body = "hold run\nrun"
    first = start(f"{body} {sys.executable} {family}", tmp_path)
    until((tmp_path / "family").exists)
    second = shell(f"{body} touch second", tmp_path)
    assert_error(second, f"run: process {first.pid} (script.sh", "at work there")
    assert second.stderr.count("\n") == 1
    # another folder is free; a dry run asks for nothing
    assert shell("hold other\nhold other\nrelease\nrelease\nhold other", tmp_path).returncode == 0
    assert shell("DRY_RUN=1\nhold run\nhold dry", tmp_path).returncode == 0
    assert not (tmp_path / "dry").exists()
    # killed, it leaves its children; they are named, and keep the folder
    first.kill()
    first.wait()
    pid = (tmp_path / "family").read_text().split()[0]
    assert_error(shell(f"{body} touch second", tmp_path), f"process {first.pid}", "left", pid)
    for child in (tmp_path / "family").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    until(lambda: not is_running(pid))
    assert shell(f"{body} touch second", tmp_path).returncode == 0
    assert (tmp_path / "second").exists()
    first.stderr.close()


def test_a_lock_is_waited_for_and_scripts_below_share_it(tmp_path):
    inner = "run bash -c '. \"$COMMON/lib.sh\"; hold data; touch inner'"
    first = start(
        f"export COMMON\nhold data\n{inner}\nuntil [[ -e go ]]; do sleep 0.02; done\ntouch done",
        tmp_path,
    )
    until((tmp_path / "inner").exists)
    body = "hold data wait\n[[ -e done ]]\nrelease\nhold data"
    second = start(body, tmp_path)
    line = second.stderr.readline()
    assert f"data: waiting for process {first.pid} (script.sh" in line
    (tmp_path / "go").touch()
    assert first.wait(timeout=20) == 0 and second.wait(timeout=20) == 0
    for process in (first, second):
        process.stderr.close()


def test_a_folder_is_the_same_by_each_of_its_names(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    assert shell("hold run\nhold link\nhold ./run/../run", tmp_path).returncode == 0


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    assert_error(shell("hold file/run", tmp_path), "file/run: cannot be created")


@pytest.mark.parametrize("recipe", ["bert_pretraining", "clue_pretraining", "language_model"])
def test_two_preparations_of_a_folder_do_not_meet(tmp_path, recipe):
    texts = tmp_path / "texts"
    texts.mkdir()
    for split in ("train", "valid"):
        (texts / f"{split}.txt").write_text("a b\n")
    (tmp_path / "out").mkdir()
    holder = start("hold out\ntouch held\ninterruptible sleep 60", tmp_path)
    until((tmp_path / "held").exists)
    kind = ["wikitext"] if recipe == "language_model" else []
    second = bash(EXAMPLES / recipe / "prepare.sh", *kind, texts, "out", cwd=tmp_path)
    assert_error(second, f"process {holder.pid}", "out")
    holder.terminate()
    holder.wait()
    holder.stderr.close()
