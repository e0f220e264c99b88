"""Runs of studies: their identity, resuming after changes, search, speed and failures."""

import json
from pathlib import Path

import pytest
from support.fake_fairseq import SENTENCES, FakeCommands
from support.studies import CPU, message, results, study

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps import markers
from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.commands import table
from fairseq_posenc.study.report.sentence_tests import sentence_tests
from fairseq_posenc.study.results import load_results
from fairseq_posenc.study.runs import digest_of, specs, trials

pytest_plugins = ["support.studies"]


def test_digests_depend_on_all_that_decides_a_result(read, plan, tmp_path):
    digests = {spec.digest for spec in specs(read(), {})}
    assert len(digests) == 4
    assert digests == {spec.digest for spec in specs(read(title="Another", name="other"), {})}
    for changes in (
        {"base": {**plan["base"], "--lr": 1}},
        {"budget": {"epochs": 4}},
        {"average": 3},
        {"decode": {"--beam": 5}},
        {"gpus": 2},
        {"data": {"folder": plan["data"], "tokenizer": "moses"}},
        {"data": {"folder": plan["data"], "subword_file": str(tmp_path / "data/dict.a.txt")}},
    ):
        assert digests.isdisjoint({spec.digest for spec in specs(read(**changes), {})}), changes
    more = {**plan["systems"], "t5": {"--position-encoding": "t5"}}
    assert digests < {spec.digest for spec in specs(read(systems=more, seeds=[1, 2, 3]), {})}
    (tmp_path / "data").rename(tmp_path / "moved")
    assert digests == {s.digest for s in specs(read(data=str(tmp_path / "moved")), {})}
    (tmp_path / "moved" / "train.a-b.a.idx").write_text("other")
    digest_of.cache_clear()
    assert digests.isdisjoint({s.digest for s in specs(read(data=str(tmp_path / "moved")), {})})


def test_compiled_files_of_a_users_encodings_do_not_count(read, tmp_path):
    own = tmp_path / "own"
    (own / "__pycache__").mkdir(parents=True)
    (own / "__init__.py").write_text("")

    def digests():
        digest_of.cache_clear()
        return {spec.digest for spec in specs(read(user_dir=str(own)), {})}

    before = digests()
    (own / "__pycache__" / "__init__.cpython-38.pyc").write_text("compiled")
    assert digests() == before
    (own / "__init__.py").write_text("changed")
    assert digests().isdisjoint(before)


def test_a_study_runs_once_and_resumes_after_changes(read, plan, tmp_path):
    fake = FakeCommands()
    study(read(), tmp_path / "study", fake)
    steps = ["train", "average", "validate", "decode"]
    assert [step for _, step in fake.ran] == 4 * steps
    first = results(tmp_path / "study")
    found = load_results(tmp_path / "study")
    assert [(run.system, run.seed) for run in found.runs] == [
        *(("rotary", 1), ("rotary", 2)),
        *(("stock", 1), ("stock", 2)),
    ]
    run = found.runs[0]
    assert (run.parameters, run.updates, run.tokens, run.done) == (1234, 30, 210, True)
    assert [point["update"] for point in run.curve] == [10, 20, 30]
    assert run.curve[0]["valid_loss"] - run.curve[0]["train_loss"] == pytest.approx(1)
    assert run.seconds["train"] == 6 and run.peak_memory_mb == 100
    assert set(run.scores) == {"bleu", "chrf", "ter", "loss", "perplexity"}
    assert (run.folder / run.files["hypotheses"]).read_text().startswith("hypothesis 0\nhyp")
    assert [path.name for path in run.folder.glob("checkpoints/*")] == ["checkpoint.avg.pt"]
    assert list(found.measures)[0] == "bleu" and found.measures["loss"].better == "lower"

    again = FakeCommands()
    study(read(), tmp_path / "study", again)
    assert again.ran == [] and results(tmp_path / "study") == first
    # a change of the decoding repeats it, and not the training
    notes = []
    study(read(decode={"--beam": 5}), tmp_path / "study", again, notes)
    assert [step for _, step in again.ran] == 4 * ["decode"]
    assert "has 3 steps in common" in notes[0]
    changed = load_results(tmp_path / "study").runs
    assert all(run.folder.name in command for run in changed for command in run.commands)
    assert len(results(tmp_path / "study")) == 8
    assert len(load_results(tmp_path / "study").runs) == 4
    assert first.items() <= results(tmp_path / "study").items()
    # another seed adds runs, and those of the first plan count again
    more = FakeCommands()
    study(read(seeds=[1, 2, 3]), tmp_path / "study", more)
    assert len(more.ran) == 2 * len(steps) and len(load_results(tmp_path / "study").runs) == 6


def test_further_test_sets_are_scored_under_their_names(read, tmp_path):
    data = tmp_path / "data"
    plan = read(subset=["test", "test1"], seeds=[1])
    assert "has no test1.a-b.a.idx" in message(check_plan, plan, CPU)
    for lang in "ab":
        (data / f"test1.a-b.{lang}.idx").write_text("test1")
    assert "reference.test1.b: no such file" in message(check_plan, plan, CPU)
    lines = "".join(f"hypothesis {n}\n" for n in range(SENTENCES))
    (data / "reference.test1.b").write_text(lines)
    check_plan(plan, CPU)
    study(plan, tmp_path / "study", FakeCommands())
    made = load_results(tmp_path / "study")
    assert [m.name for m in made.scored][:4] == ["bleu", "chrf", "ter", "bleu_test1"]
    assert made.measures["bleu_test1"].label == "BLEU, test1"
    (run, _) = made.runs
    assert run.scores["chrf_test1"] == 100 > run.scores["chrf"]
    assert run.lines("references_test1") == lines.splitlines()
    assert set(run.seconds) == {"train", "average", "validate", "decode"}
    (test, *_), reasons = sentence_tests(made, "chrf_test1")
    assert test == "bootstrap" and not reasons
    # what was translated before is not translated again
    fake = FakeCommands()
    study(read(subset=["test"], seeds=[1]), tmp_path / "study", fake)
    assert not fake.ran


def test_the_search_tries_the_same_values_for_every_system(read, tmp_path):
    fake = FakeCommands()
    plan = read(search={"--lr": ["1e-3", "2e-3", "4e-3"]})
    study(plan, tmp_path, fake)
    found = trials(plan)
    trained = [name for name, step in fake.ran if step == "train"]
    assert len(trained) == len(set(trained)) == 2 * 3 + 2  # seed 1 of the best is a trial already
    content = load_results(tmp_path).plan
    for system, tried in content["tried"].items():
        best = min(tried, key=tried.get)
        assert content["chosen"][system] == {"--lr": best.split()[1]}
        runs = load_results(tmp_path).of(system)
        assert [run.flags["--lr"] for run in runs] == 2 * [best.split()[1]]
    searched = [spec for tried in found.values() for _, (spec,) in tried]
    assert table(searched, tmp_path, "train")[-1] == "6 runs: 4 tried, 2 done"


def test_a_training_that_diverged_is_not_the_best(read, tmp_path):
    class Diverging(FakeCommands):
        def validate(self, words, log):
            if "--lr" in Path(log.name).with_name("train.log").read_text():
                log.write(json.dumps({"valid_loss": "nan"}) + "\n")
            else:
                super().validate(words, log)

        def train(self, words, log):
            log.write("--lr diverges\n" if words[words.index("--lr") + 1] == "9" else "")
            super().train(words, log)

    study(read(search={"--lr": ["9", "1"]}, seeds=[1]), tmp_path, Diverging())
    content = load_results(tmp_path).plan
    assert content["chosen"] == {name: {"--lr": "1"} for name in content["systems"]}
    assert {name for tried in content["tried"].values() for name in tried} == {"--lr 1"}


@pytest.mark.parametrize("number, chosen, trained", [(1, "2", 2 * 2 + 2), (2, "1", 2 * 2 * 2)])
def test_a_value_that_fails_with_a_further_seed(read, tmp_path, number, chosen, trained):
    """The second seed has a loss of 8 with the value that is better with the first."""

    class Lucky(FakeCommands):
        def validate(self, words, log):
            rate, seed = Path(log.name).with_name("train.log").read_text().split()[:2]
            loss = {"1": 4, "2": 3 if seed == "1" else 8}[rate]
            log.write(json.dumps({"valid_loss": str(loss)}) + "\n")

        def train(self, words, log):
            given = [words[words.index(flag) + 1] for flag in ("--lr", "--seed")]
            log.write(" ".join(given) + "\n")
            return super().train(words, log)

    fake = Lucky()
    study(read(search={"--lr": ["1", "2"]}, seeds=[1, 2], search_seeds=number), tmp_path, fake)
    content = load_results(tmp_path).plan
    assert content["chosen"] == {name: {"--lr": chosen} for name in content["systems"]}
    assert [step for _, step in fake.ran].count("train") == trained


def test_a_system_whose_search_fails_does_not_stop_the_others(read, tmp_path):
    def fail(words, epoch=0):
        return int("transformer" in words)

    plan = read(search={"--lr": ["1e-3", "2e-3"]}, seeds=[1])
    found = study(plan, tmp_path, FakeCommands(fail=fail))
    assert {r["system"]: r["status"] for r in found} == {"rotary": "done", "stock": "failed"}


def test_a_failed_step_is_tried_again_and_then_reported(read, tmp_path):
    failures = []

    def fail(words, epoch=0):
        if "--seed" not in words or words[words.index("--seed") + 1] != "1" or epoch:
            return 0
        stock = "transformer" in words
        failures.append(stock)
        return int(stock or len(failures) == 1)

    notes = []
    found = study(read(), tmp_path, FakeCommands(fail=fail), notes)
    states = {(r["system"], r["seed"]): r["status"] for r in found}
    assert states.pop(("stock", 1)) == "failed" and set(states.values()) == {"done"}
    (failed,) = [r for r in found if r["status"] == "failed"]
    assert failed["error"].endswith("RuntimeError: out of luck")
    assert failures.count(True) == 2
    assert sum("trying once more" in note for note in notes) == 2
    assert not load_results(tmp_path).of("stock")[0].seed == 1
    lines = table(specs(read(), {}), tmp_path)
    assert lines[-1] == "4 runs: 3 done, 1 failed"
    # started again, it is tried again
    assert {r["status"] for r in study(read(), tmp_path, FakeCommands())} == {"done"}


def test_a_checkpoint_that_is_gone_is_made_again(read, tmp_path):
    def fail(words, epoch=0):
        if words[0] == "fairseq-validate":
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        study(read(), tmp_path, FakeCommands(fail=fail))
    gone = next(tmp_path.glob("runs/*/checkpoints/checkpoint.avg.pt"))
    gone.unlink()
    fake = FakeCommands()
    assert {r["status"] for r in study(read(), tmp_path, fake)} == {"done"}
    assert (gone.parents[1].name, "train") in fake.ran


def test_a_full_disk_stops_the_study_and_loses_nothing(read, tmp_path, monkeypatch):
    write, written = markers.replace_file, []

    def full(path):
        written.append(path)
        if len(written) == 8:
            raise UsageError(f"{path}: cannot be written (No space left on device)")
        return write(path)

    monkeypatch.setattr(markers, "replace_file", full)
    assert "No space left" in message(study, read(), tmp_path / "study", FakeCommands())

    def no_space(words, epoch=0):
        raise OSError(28, "No space left on device", "train.log")

    said = message(study, read(), tmp_path / "study", FakeCommands(fail=no_space))
    assert (
        said
        == "train.log: No space left on device; once that is put right, the same command goes on"
    )
    study(read(), tmp_path / "study", FakeCommands())
    study(read(), tmp_path / "whole", FakeCommands())
    assert results(tmp_path / "study") == results(tmp_path / "whole")
