"""Processes of studies: locks, kills at random moments, and how devices are shared out."""

import multiprocessing
import os
import random
import signal
import time

from support.fake_fairseq import FakeCommands
from support.studies import CPU, message, results, study

from fairseq_posenc.steps import lock
from fairseq_posenc.steps.processes import Processes, program
from fairseq_posenc.study.commands import Device, devices_of, dry_run
from fairseq_posenc.study.results import load_results
from fairseq_posenc.study.runs import specs

pytest_plugins = ["support.studies"]


def test_two_processes_do_not_work_on_one_study(read, tmp_path):
    with lock.hold(tmp_path / "study"):
        said = message(study, read(), tmp_path / "study", FakeCommands())
        assert f"process {os.getpid()}" in said and "is at work there" in said
    study(read(), tmp_path / "study", FakeCommands())


def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(read, tmp_path):
    plan, draw = read(seeds=[1, 2, 3]), random.Random(1)
    study(plan, tmp_path / "whole", FakeCommands())
    fork = multiprocessing.get_context("fork")
    devices = (CPU, CPU)
    killed = 0
    while killed < 25:
        commands = FakeCommands(pause=0.01)
        process = fork.Process(
            target=study, args=(plan, tmp_path / "parts", commands, None, devices)
        )
        process.start()
        process.join(draw.uniform(0.0, 0.12))
        if process.exitcode is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        killed += 1
    assert killed >= 5
    study(plan, tmp_path / "parts", FakeCommands(), devices=devices)
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    assert len(load_results(tmp_path / "parts").runs) == 6


def test_processes_run_and_are_stopped(tmp_path):
    processes = Processes()
    with lock.hold(tmp_path) as (held, _):
        ended = processes(["python", "-c", "print(6 * 7)"], tmp_path / "log", os.environ, held)
        assert ended.status == 0 and ended.peak_memory_mb > 1
        assert (tmp_path / "log").read_text().endswith("\n42\n")
        crash = ["python", "-c", "import os; os.kill(os.getpid(), 9)"]
        assert processes(crash, tmp_path / "log", os.environ, held).status == -9
    assert program(["fairseq-eval-lm", "x"])[1:] == ["-m", "fairseq_cli.eval_lm", "x"]


def test_a_surviving_command_keeps_its_run_locked(tmp_path):
    with lock.hold(tmp_path) as (held, _):
        child = os.fork()
        if child == 0:
            os.dup(*held)
            time.sleep(30)
            os._exit(0)
    try:
        assert lock.holder(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert lock.holder(tmp_path) is None


def test_devices_are_shared_out(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = os.sched_getaffinity(0)
    assert [d.gpus for d in devices_of(["0", "1"], 1, 0, 9)] == [("0",), ("1",)]
    assert [d.gpus for d in devices_of(["0"], 1, 3, 9)] == 3 * [("0",)]
    assert [d.gpus for d in devices_of(["0", "1", "2", "3"], 2, 0, 9)] == [("0", "1"), ("2", "3")]
    assert [d.gpus for d in devices_of(["0", "1", "2"], 8, 0, 9)] == [("0", "1")]
    assert [d.threads for d in devices_of([], 1, 1, 9)] == [len(cores)]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [d.threads for d in devices_of([], 1, 2, 9)] == [3, 3]


def test_fewer_gpus_gather_the_same_batch(read, tmp_path):
    spec = specs(read(gpus=8), {})[0]
    for gpus, frequency in ((1, 8), (2, 4)):
        lines = dry_run([spec], tmp_path, Device(tuple(map(str, range(gpus)))))
        assert f"--update-freq {frequency} --distributed-world-size {gpus}" in lines[1]
    assert "--cpu" in dry_run([spec], tmp_path, CPU)[1]
    assert '--user-dir "$(fairseq-posenc path)"' in lines[1]
