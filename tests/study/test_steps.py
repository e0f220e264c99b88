"""The steps of a run: what is repeated when files are gone, and what is removed when."""

import json
from pathlib import Path

import pytest
from support.studies import CPU

from fairseq_posenc.steps.processes import Ended
from fairseq_posenc.study.recipes.base import RUN, Step
from fairseq_posenc.study.runs import Spec
from fairseq_posenc.study.work import Worker

STEPS = (
    Step("train", ("make", f"{RUN}/checkpoints/last")),
    Step("tune", ("make", f"{RUN}/tuned/x/best"), inputs=("checkpoints/last",), fresh="tuned/x"),
    Step("answers", ("make", f"{RUN}/tuned/x.tsv"), inputs=("tuned/x/best",), discards="tuned/x/*"),
    Step("score", collect=lambda run: {"scores": {"n": 1}}, inputs=("tuned/x.tsv",)),
)


@pytest.fixture
def run(tmp_path):
    """Makes a run of these steps; returns the names of the commands it needed, and its folder."""

    def run():
        done = []

        def execute(words, log, environment, lock):
            done.append(log.stem)
            Path(words[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(words[1]).write_text("made")
            return Ended(0)

        spec = Spec("a", 1, {}, (), STEPS, ("1", "2", "3", "4"), 1, 1)
        found = Worker(tmp_path, execute, lambda line: None).make(spec, CPU)
        assert found["status"] == "done" and found["scores"] == {"n": 1}
        return done, tmp_path / "runs" / spec.name

    return run


def test_what_is_discarded_is_not_missed(run):
    done, folder = run()
    assert done == ["train", "tune", "answers"]
    assert (folder / "tuned/x.tsv").exists() and not (folder / "tuned/x/best").exists()
    assert run()[0] == []


def test_a_file_that_is_gone_costs_the_step_that_made_it(run):
    """Killed at the worst moment, a fine-tuning is repeated, and never the pre-training."""
    _, folder = run()
    for name in ("result.json", "steps/answers.json", "steps/score.json"):
        (folder / name).unlink()
    assert run()[0] == ["tune", "answers"]
    (folder / "result.json").unlink()
    (folder / "steps/tune.json").write_text(json.dumps({}))
    (folder / "checkpoints/last").unlink()
    assert run()[0] == ["train", "tune", "answers"]
