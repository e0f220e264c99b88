"""Studies of generated tasks: their data, steps, scores, resuming, and what is refused."""

import json
from pathlib import Path

import pytest
import yaml
from support.fake_fairseq import FakeCommands
from support.studies import CPU, message, results, study

from fairseq_posenc.cli import main
from fairseq_posenc.generated.writing import read_written
from fairseq_posenc.study.checks import check_plan, match_parameters
from fairseq_posenc.study.plan import load_plan
from fairseq_posenc.study.recipes.generated import (
    breaking_length,
    folder_of,
    prepare,
    task_scores,
)
from fairseq_posenc.study.results import load_results, to_csv
from fairseq_posenc.study.runs import specs

PLAN = {
    "recipe": "generated",
    "data": "data",
    "generated": {
        "tasks": {"copy": {}, "sort": {"test_lengths": [2, 3, 6]}},
        **{"lengths": "1-3", "test_lengths": [2, 6], "samples": 60, "test_samples": 5},
    },
    "base": {"--arch": "posenc_lm", "--tokens-per-sample": 32, "--batch-size": 4,
             "--optimizer": "adam"},
    "systems": {name: {"--position-encoding": name} for name in ("rotary", "none")},
    "seeds": [1, 2],
    "budget": {"updates": 30},
}  # fmt: skip


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Loads the plan with changes, in a folder of its own, where its data go, too."""
    monkeypatch.chdir(tmp_path)

    def read(**changes):
        content = {**PLAN, **changes}
        Path("plan.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return load_plan("plan.yaml")

    return read


class Tested(FakeCommands):
    """A model is right up to length 3, and in three of four cases beyond."""

    def validate(self, words, log):
        assert Path(words[words.index("--path") + 1]).exists()
        for name in words[words.index("--valid-subset") + 1].split(","):
            right = 100 if int(name[len("length") :]) <= 3 else 75
            log.write(json.dumps({f"{name}_loss": "1", f"{name}_exact_match": str(right)}) + "\n")


def test_a_control_is_no_part_of_means(read):
    class Learned(Tested):
        """Parity is learned better than what else there is."""

        def train(self, words, log):
            super().train(words, log)
            if "/parity-" in words[1]:
                learned = {"epoch": 3, "valid_loss": "0.1", "valid_num_updates": "30"}
                log.write(json.dumps(learned) + "\n")

        def validate(self, words, log):
            if "/parity-" not in words[1]:
                return super().validate(words, log)
            for name in words[words.index("--valid-subset") + 1].split(","):
                log.write(json.dumps({f"{name}_loss": "0", f"{name}_exact_match": "100"}) + "\n")

    settings = {"lengths": "1-3", "test_lengths": [2, 6], "samples": 60, "test_samples": 5}
    plan = read(generated={**settings, "tasks": ["parity", "copy"]}, seeds=[1])
    prepare(plan)
    study(plan, Path("study"), Learned())
    run = load_results(Path("study")).runs[0]
    scores = run.scores
    assert scores["parity_loss"] == 0.1 != scores["copy_loss"] == scores["loss"]
    assert run.curve[-1]["valid_loss"] == scores["loss"]
    assert scores["parity_breaking"] == 2 != scores["copy_breaking"] == scores["breaking"]


def test_a_study_trains_and_tests_every_task(read):
    plan = read(search={"--lr": ["1", "2"]})
    prepare(plan)
    fake = Tested()
    study(plan, Path("study"), fake)
    trained = ["train-copy", "train-sort"]
    tested = ["test-copy", "test-sort"]
    ran = [step for _, step in fake.ran]
    # the search trains each value with the first seed; the chosen one is not trained again
    assert ran == 4 * trained + 2 * tested + 2 * (trained + tested)
    found = load_results(Path("study"))
    run = found.runs[0]
    assert run.lengths == {"copy": {2: 100, 6: 75}, "sort": {2: 100, 3: 100, 6: 75}}
    scores = run.scores
    assert (scores["within"], scores["beyond"], scores["breaking"]) == (100, 75, round(5 / 6, 4))
    assert scores["copy_breaking"] == round(2 / 3, 4) and scores["sort_breaking"] == 1
    assert scores["loss"] == pytest.approx(
        (scores["copy_loss"] + scores["sort_loss"]) / 2, abs=1e-3
    )
    assert (run.parameters, run.updates, run.tokens) == (1234, 30, 2 * 210)
    assert run.seconds["train"] == 2 * 6 and run.seconds["test"] == 2
    assert [point["update"] for point in run.curve] == [10, 20, 30]
    assert not list(Path("study").glob("runs/*-seed2-*/checkpoints/**/*.pt"))
    table = to_csv(found).splitlines()
    assert table[0].endswith("copy_length2,copy_length6,sort_length2,sort_length3,sort_length6")
    assert table[1].endswith("100.0,75.0,100.0,100.0,75.0")
    # a second time, nothing is left to do
    first = results(Path("study"))
    again = Tested()
    study(plan, Path("study"), again)
    assert again.ran == [] and results(Path("study")) == first


def test_a_killed_training_goes_on_and_changes_nothing(read):
    plan = read(systems={"rotary": {}}, seeds=[1])
    prepare(plan)
    study(plan, Path("whole"), Tested())
    killed = []

    def kill(words, epoch=0):
        if epoch == len(killed) + 1 < 3 and "checkpoints/sort" in " ".join(words):
            killed.append(words)
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            study(plan, Path("killed"), Tested(fail=kill))
    last = Tested()
    study(plan, Path("killed"), last)
    assert [step for _, step in last.ran] == ["train-sort", "test-copy", "test-sort"]
    assert results(Path("killed")) == results(Path("whole"))


def test_another_task_repeats_no_more_than_it_must(read):
    plan = read(systems={"rotary": {}}, seeds=[1])
    prepare(plan)
    study(plan, Path("study"), Tested())
    tasks = {**PLAN["generated"]["tasks"], "reverse": {}}
    plan = read(systems={"rotary": {}}, seeds=[1], generated={**PLAN["generated"], "tasks": tasks})
    prepare(plan)
    notes, more = [], Tested()
    study(plan, Path("study"), more, notes)
    # the checkpoints that the tests read are gone, so all three are trained, each once
    ran = [step for _, step in more.ran]
    assert sorted(ran) == sorted(f"{what}-{task}" for what in ("train", "test") for task in tasks)
    assert not any("gone" in note for note in notes)


def test_data_are_made_once_and_by_their_settings(read):
    plan = read()
    prepare(plan)
    copy, sort = (folder_of(plan, one) for one in plan.generated)
    assert read_written(sort).settings == plan.generated[1]
    before = Path(copy, "train.bin").stat().st_mtime_ns
    prepare(plan)
    assert Path(copy, "train.bin").stat().st_mtime_ns == before
    other = read(generated={**PLAN["generated"], "seed": 2})
    assert folder_of(other, other.generated[0]) != copy
    (spec, *_) = specs(plan, {})
    assert {step.words[1] for step in spec.steps if step.words} == {copy, sort}


@pytest.mark.parametrize(
    "family, base",
    [
        ("language_modeling", {"--arch": "posenc_lm", "--tokens-per-sample": 32}),
        ("masked_lm", {"--arch": "posenc_masked_lm", "--tokens-per-sample": 32}),
        ("translation", {"--arch": "posenc_transformer"}),
    ],
)
def test_every_family_has_command_lines_that_fairseq_takes(family, base, read):
    generated = {**PLAN["generated"], "family": family}
    plan = read(generated=generated, base={"--optimizer": "adam", "--batch-size": 4, **base})
    prepare(plan)
    assert check_plan(plan, CPU) == []
    assert {*match_parameters(plan).systems} == {"rotary", "none"}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"generated": None}, "generated: missing; give for example {tasks: [copy, reverse]}"),
        ({"generated": {"tasks": ["cpy"]}}, "generated: generate-task cpy: must be copy or"),
        ({"generated": {"tasks": ["copy"], "lengths": "x"}}, "generated: lengths: x: expected le"),
        ({"generated": {"tasks": ["copy"], "samples": -5}}, "samples: -5: expected a whole number"),
        (
            {"generated": {"tasks": ["recall"], "lengths": "5-9"}},
            "generated: lengths 5: recall has the lengths 8, 9, 10, … (symbols of",
        ),
        (
            {"generated": {"tasks": ["scan"], "family": "masked_lm"}},
            "generated: family masked_lm: scan is for translation and language_modeling",
        ),
        (
            {"generated": {"tasks": ["copy"], "lengths": "1-3", "test_lengths": [2, 3]}},
            "generated: copy: test_lengths: need lengths up to and beyond 3, the longest of the tr",
        ),
        ({"average": 2}, "average: has no meaning for the recipe generated"),
        ({"decode": {"--beam": 4}}, "decode: has no meaning for the recipe generated"),
        ({"base": {**PLAN["base"], "--criterion": "cross_entropy"}}, "drop the flag"),
        ({"systems": {"a": {"data": "x"}}}, "systems: a: data: the recipe generated has one fol"),
        (
            {"base": {**PLAN["base"], "--tokens-per-sample": 13}},
            "systems: rotary: --tokens-per-sample 13: the longest sample of copy has 14 symbols",
        ),
        (
            {"systems": {"a": {"--position-encoding": "learned", "--max-target-positions": 8}}},
            "systems: a: --max-target-positions 8: the longest sample of copy has 14 symbols",
        ),
        (
            {
                "generated": {
                    "tasks": ["copy"],
                    "family": "translation",
                    "lengths": "1-3",
                    "test_lengths": [2, 1500],
                    "samples": 60,
                    "test_samples": 5,
                },
                "base": {"--arch": "posenc_transformer", "--batch-size": 4, "--optimizer": "adam"},
            },
            "systems: rotary: --max-source-positions 1024: the longest sample of copy has 15",
        ),
        ({"measures": ["copy_beyont"]}, "measures: copy_beyont: unknown; did you mean copy_beyond"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_mistakes_are_one_line(changes, said, read):
    def check():
        plan = read(**changes)
        prepare(plan)
        check_plan(plan, CPU)

    assert said in message(check)


@pytest.mark.parametrize(
    "own, said",
    [
        ({"--max-target-positions": 8}, "systems: a: --max-target-positions 8: the longest sample"),
        ({"--random-positions": 5}, "--random-positions 5: training samples of copy have up to 8"),
    ],
)
def test_models_that_are_too_short_are_refused_before_data_are_made(read, own, said):
    def check():
        check_plan(read(systems={"a": {"--position-encoding": "learned", **own}}), CPU)

    assert said in message(check) and not Path("data").exists()


def test_commands_are_shown_without_data(read, capsys):
    read()
    assert main(["study", "plan.yaml", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# data: data/copy-") and "no such folder; the study makes it" in shown
    assert shown.count("fairseq-train data/copy-") == 4 and not Path("data").exists()


def test_where_a_model_breaks():
    assert breaking_length({10: 100, 5: 90, 20: 89.9, 40: 100}) == 10
    assert breaking_length({5: 10, 10: 100}) == 0
    found = task_scores({5: 100.0, 10: 80.0, 20: 40.0, 40: 0.0}, 10)
    assert found == {"within": 90, "beyond": 20, "breaking": 0.5}
