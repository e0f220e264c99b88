"""Studies on a Slurm cluster: what is submitted, what happens when a job dies, and mistakes."""

import json
from types import SimpleNamespace

import pytest
from support.fake_fairseq import FakeCommands
from support.studies import message, study

from fairseq_posenc.study import slurm
from fairseq_posenc.study.runs import specs

pytest_plugins = ["support.studies"]


class Dead:
    """A job that was killed."""

    def result(self):
        raise RuntimeError("Job 7 (task: 0) failed\n\nslurmstepd: oom-kill event")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster that computes at once, with the runs that were submitted, array by array."""

    class Executor:
        dying, arrays, cluster = [], [], "local"

        def __init__(self, **settings):
            self.settings = settings

        def update_parameters(self, **settings):
            self.settings.update(settings)

        def map_array(self, function, jobs):
            names = [spec.name for spec, _ in jobs]
            self.arrays.append(names)
            return [self.submit(function, job) for job in jobs]

        def submit(self, function, job):
            if job[0].name in self.dying:
                self.dying.remove(job[0].name)
                return Dead()
            result = function(job)
            return SimpleNamespace(result=lambda: result, job_id="7")

    Dead.job_id = "7"
    monkeypatch.setattr(
        slurm, "import_extra", lambda name, used_by: SimpleNamespace(AutoExecutor=Executor)
    )
    monkeypatch.setattr(slurm, "Processes", FakeCommands)
    return Executor


def test_finished_runs_are_not_submitted_and_dead_ones_once_more(read, tmp_path, cluster):
    study(read(seeds=[1]), tmp_path, FakeCommands())
    runs = specs(read(seeds=[1, 2, 3]), {})
    once, always = runs[2].name, runs[5].name
    cluster.dying[:] = [once, always, always]
    make = slurm.cluster(tmp_path, "partition=gpu", 3, 1)
    found = make([(spec, "") for spec in runs])
    assert cluster.arrays == [[spec.name for spec in runs[2:]], [once, always]]
    assert [r["status"] for r in found] == 5 * ["done"] + ["failed"]
    assert [(r["system"], r["seed"]) for r in found] == [(s.system, s.seed) for s in runs]
    kept = json.loads((tmp_path / "runs" / always / "result.json").read_text())
    assert kept["status"] == "failed" and kept["error"].endswith("oom-kill event")
    # started again, it is tried again
    assert {r["status"] for r in make([(spec, "") for spec in runs])} == {"done"}
    assert cluster.arrays[2:] == [[always]]


def test_a_job_has_as_many_gpus_as_divide_the_batch(tmp_path, cluster):
    for asked in ("3", "16", "a"):
        said = message(slurm.cluster, tmp_path, f"gpus_per_node={asked}", None, 8)
        assert f"gpus_per_node {asked}: the batch of a run is meant for 8 GPUs" in said
    assert "for 1 GPU (" in message(slurm.cluster, tmp_path, "gpus_per_node=4", None, 1)
    for asked in (0, 2, 8):
        slurm.cluster(tmp_path, f"gpus_per_node={asked}", None, 8)


@pytest.mark.parametrize("status, waits", [(-15, True), (-12, True), (1, False), (-9, False)])
def test_a_step_is_not_tried_again_while_its_job_is_being_ended(
    status, waits, read, tmp_path, cluster, monkeypatch
):
    class Requeued(Exception):
        """The job has ended meanwhile."""

    def wait(seconds):
        assert seconds >= 60
        raise Requeued

    monkeypatch.setattr(slurm.time, "sleep", wait)
    fake = FakeCommands(fail=lambda words, epoch=0: status)
    monkeypatch.setattr(slurm, "Processes", lambda: fake)
    run = slurm.OnNode(tmp_path, 0)
    job = (specs(read(), {})[0], "")
    if waits:
        with pytest.raises(Requeued):
            run(job)
    else:
        assert run(job)["status"] == "failed"
    assert len(fake.ran) == (1 if waits else 2)


class Job:
    """A job that Slurm has in the queue and in accounting as often as its lists say."""

    job_id = "7_1"

    def __init__(self, folder, queue, states, monkeypatch):
        self.queue, self.states, self.folder, self.looks = list(queue), list(states), folder, 0
        self.paths = SimpleNamespace(result_pickle=folder / "result")
        monkeypatch.setattr(slurm.subprocess, "run", self.squeue)
        monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(slurm, "_LOOK_AGAIN", 0)

    def squeue(self, words, **kwargs):
        assert words[-2:] == ["--jobs", "7"]
        self.looks += 1
        said = self.queue.pop(0)
        if said in ("result", "error"):
            self.paths.result_pickle.write_text(said)
        return SimpleNamespace(
            returncode=int(said in ("forgotten", "no answer")),
            stdout="7_0\n7_1\n" if said in ("here", "error") else "7_0\n",
            stderr="error: Invalid job id specified" if said == "forgotten" else "",
        )

    @property
    def state(self):
        return self.states[min(self.looks, len(self.states)) - 1]

    def done(self):
        return self.state in ("FAILED", "CANCELLED")

    def exception(self):
        return self.paths.result_pickle.read_text() == "error" or None

    def result(self):
        if self.exception():
            raise RuntimeError("slurmstepd: killed")
        return {"status": "done"}

    def stderr(self):
        return "slurmstepd: killed\n\n"


@pytest.mark.parametrize(
    "queue, states, ended",
    [
        # without accounting, a job that has left the queue has ended
        (["here", "no answer", "gone", "gone"], ["UNKNOWN"], False),
        (["here", "forgotten", "forgotten"], ["UNKNOWN"], False),
        # a job that is being requeued is neither here nor there for a moment
        (["here", "gone", "here", "gone", "result"], ["UNKNOWN"], True),
        # accounting may know more, and may have only the failure before the requeueing
        (["gone", "gone", "gone", "gone", "gone"], ["RUNNING"] * 3 + ["CANCELLED"] * 2, False),
        (["here", "here", "here", "result"], ["FAILED"], True),
        # the error of a job that is still in the queue is that of the requeueing
        (["error", "here", "gone", "here", "result"], ["UNKNOWN"], True),
        (["here", "error", "gone", "gone"], ["UNKNOWN"], False),
    ],
)
def test_a_job_has_ended_when_neither_queue_nor_accounting_has_it(
    queue, states, ended, tmp_path, monkeypatch
):
    job = Job(tmp_path, queue, states, monkeypatch)
    found, error = slurm._outcome(job, True)
    assert job.queue == []
    assert (found, error) == (({"status": "done"}, "") if ended else (None, "slurmstepd: killed"))


@pytest.mark.parametrize(
    "settings", ["cluster=slrum", "mem_gb=1.5", "timeout_min=10h", "partitoin=x", "partition=x"]
)
def test_settings_that_submitit_refuses_are_one_line(settings, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))  # without srun
    said = message(slurm.cluster, tmp_path, settings, None, 1)
    assert said.startswith(f"--slurm {settings}: ")
