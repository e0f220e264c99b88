"""Studies on a real Slurm cluster of one node without accounting, where that is installed."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from support.commands import succeed
from support.slurm_node import say, until

from fairseq_posenc.study.results import load_results

pytest.importorskip("submitit", reason="an extra: study")
pytest_plugins = ["support.slurm_node", "support.toy"]
pytestmark = pytest.mark.slow

BASE = (
    "--arch posenc_lm --decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--decoder-attention-heads 2 --criterion cross_entropy --optimizer adam --lr 0.01 "
    "--tokens-per-sample 32 --batch-size 2 --log-interval 1 --save-interval-updates 5 "
    "--disable-validation"
)
JOB = "partition=low,gpus_per_node=0,cpus_per_task=1,timeout_min=9"


@pytest.fixture
def start(toy, tmp_path):
    """Starts a study, on the cluster or not."""
    texts = [f for n in ("train", "valid") for f in (f"--{n}pref", toy.text / f"{n}.src")]
    for name in ("train", "valid"):
        (tmp_path / name).write_text((toy.text / f"{name}.src").read_text())
    texts = [f for n in ("train", "valid") for f in (f"--{n}pref", tmp_path / n)]
    succeed("preprocess", "--only-source", *texts, "--destdir", tmp_path / "data")

    def start(name, updates, *options):
        plan = {
            "recipe": "language_model", "data": str(tmp_path / "data"), "base": BASE,
            "systems": {"rotary": {"--position-encoding": "rotary"}}, "seeds": [1],
            "budget": {"updates": updates},
        }  # fmt: skip
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plan))
        words = ["study", str(path), "--output", str(tmp_path / name), *options]
        with open(tmp_path / f"{name}.log", "w") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(
                [sys.executable, "-m", "fairseq_posenc", *words],
                stdout=log, stderr=subprocess.STDOUT, env=environment,
            )  # fmt: skip

    return start


def updates_of(study):
    """The updates that a training has logged; what was logged twice counts twice."""
    return sum(log.read_text().count('"num_updates"') for log in study.glob("runs/*/train.log"))


def jobs():
    return say("squeue", "--noheader", "--states=R", "--partition=low", "--format=%i").split()


def test_preempted_requeued_and_out_of_time_it_ends_as_if_it_had_not_been(slurm, start, tmp_path):
    study = tmp_path / "cluster"
    driver = start("cluster", 400, "--slurm", JOB)
    seen = 0

    def goes_on():
        return driver.poll() is not None or (jobs() and updates_of(study) >= seen + 20)

    until(goes_on, "a job that trains")
    say("sbatch", "--partition=high", "--cpus-per-task=2", "--output=/dev/null", "--wrap=sleep 3")
    until(lambda: not jobs(), "the job to be preempted")
    seen = updates_of(study)
    until(goes_on, "a job that trains again")
    say("scontrol", "requeue", jobs()[0])
    until(lambda: not jobs(), "the job to be requeued")
    seen = updates_of(study)
    until(goes_on, "a job that trains again")
    say("scancel", "--signal=USR2", jobs()[0])  # as Slurm does when the time is nearly up
    until(lambda: not jobs(), "the job to put itself back into the queue")
    assert driver.wait(timeout=1800) == 0, (tmp_path / "cluster.log").read_text()[-2000:]
    said = "".join(path.read_text() for path in study.glob("slurm/*.out"))
    assert "this job is timed-out" in said and "waiting for the end of the job" in said
    assert "trying once more" not in said and "failed" not in said
    assert (tmp_path / "cluster.log").read_text().count(" jobs: ") == 1  # none was submitted twice
    assert start("local", 400, "--devices", "cpu").wait(timeout=600) == 0
    (disturbed,), (whole,) = (load_results(tmp_path / n).runs for n in ("cluster", "local"))
    assert disturbed.digest == whole.digest and disturbed.scores == whole.scores
    assert disturbed.updates == whole.updates == 400
    assert list(disturbed.curve) == list(whole.curve)


def test_a_job_that_is_killed_ends_the_waiting(slurm, start, tmp_path):
    driver = start("killed", 100_000, "--slurm", JOB)
    for _ in range(2):
        until(lambda: jobs() and updates_of(tmp_path / "killed"), "a job that trains")
        job = jobs()[0]
        say("scancel", "--signal=KILL", "--full", job)
        until(lambda: not jobs(), "the job to end")
    assert driver.wait(timeout=300) == 1
    (result,) = (tmp_path / "killed").glob("runs/*/result.json")
    assert json.loads(result.read_text())["status"] == "failed"
    assert "0 of 1 runs are done" in (tmp_path / "killed.log").read_text()
