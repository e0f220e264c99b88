"""Studies: plans, the identity of runs, resuming, failures, and kills at random moments."""

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml
from commands import Command
from fake_fairseq import SENTENCES, FakeCommands

from fairseq_posenc.cli import main
from fairseq_posenc.cli import study as cli
from fairseq_posenc.errors import UsageError
from fairseq_posenc.study import lock, markers
from fairseq_posenc.study import study as study_module
from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.plan import load_plan
from fairseq_posenc.study.processes import Device, Ended, Processes, program
from fairseq_posenc.study.results import load_results
from fairseq_posenc.study.runs import digest_of, specs
from fairseq_posenc.study.slurm import parse_settings
from fairseq_posenc.study.status import dry_run, table
from fairseq_posenc.study.study import Pool, carry_out, devices_of
from fairseq_posenc.study.work import Worker

pytest_plugins = ["toy"]
CPU = Device()


@pytest.fixture
def plan(tmp_path):
    """A plan as its file has it, with data of the names that fairseq would make."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("dict.a.txt", "dict.b.txt"):
        (data / name).write_text("word 1\n")
    for split in ("train", "valid", "test"):
        for lang in "ab":
            (data / f"{split}.a-b.{lang}.idx").write_text(split)
    lines = "".join(f"reference {n}\n" for n in range(SENTENCES))
    for lang in "ab":
        (data / f"reference.test.{lang}").write_text(lines)
    settings = "SOURCE=a\nTARGET=b\nTOKENIZER=none\nSUBWORDS=none\nSUBWORD_FILE=\n"
    (data / "text.settings").write_text(settings)
    return {
        "recipe": "translation",
        "data": str(data),
        "base": {"--arch": "posenc_transformer", "--max-tokens": 100, "--optimizer": "adam"},
        "systems": {
            "rotary": {"--position-encoding": "rotary"},
            "stock": {"--arch": "transformer"},
        },
        "seeds": [1, 2],
        "budget": {"epochs": 3},
        "average": 2,
    }


@pytest.fixture
def read(plan, tmp_path):
    """Writes a plan, with changes, and loads it."""

    def read(**changes):
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({**plan, **changes}, sort_keys=False))
        return load_plan(tmp_path / "plan.yaml")

    return read


def study(plan, folder, execute, notes=None, devices=(CPU,)):
    note = (lambda text: None) if notes is None else notes.append
    return carry_out(plan, folder, Pool(Worker(folder, execute, note), devices, lambda: None), note)


def results(folder):
    """All results of a study, without what differs between repetitions."""
    found = {}
    for path in sorted(folder.glob("runs/*/result.json")):
        found[path.parent.name] = json.loads(path.read_text())
        for key in ("seconds", "peak_memory_mb", "environment", "commands"):
            found[path.parent.name].pop(key)
    return found


def message(call, *args):
    with pytest.raises(UsageError) as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value).partition("error: ")[2]


# --- plans


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"systms": {}}, "systms: unknown key; did you mean systems?"),
        ({"recipe": "translatoin"}, "recipe: translatoin: unknown; did you mean translation?"),
        ({"seeds": [1, 2, 1]}, "seeds: 1: given twice"),
        ({"seeds": []}, "seeds: missing"),
        ({"budget": {"epoch": 3}}, "budget: epoch: unknown key; did you mean epochs?"),
        ({"budget": {"epochs": 3, "updates": 9}}, "budget: expected one of epochs, updates"),
        ({"budget": {"epochs": 0}}, "budget: epochs: 0: expected a whole number above 0"),
        ({"base": {"--max-epoch": 3}}, "base: --max-epoch: give budget instead"),
        ({"base": {"lr": 3}}, "base: lr: is no flag; write --lr"),
        ({"base": {"--lr": [3]}}, "base: --lr: expected a text"),
        ({"systems": {"a": {"--seed": 3}}}, "systems: a: --seed: give seeds instead"),
        ({"systems": {"a/b": {}}}, "systems: 'a/b': expected letters"),
        ({"systems": {"A": {}, "a": {}}}, "differ only in upper and lower case"),
        ({"data": {"folder": "x", "tokeniser": "moses"}}, "tokeniser: unknown key; did you mean"),
        ({"data": "nowhere"}, "data: nowhere: no such folder; make it with examples/translation"),
        ({"subset": "tset"}, "has no tset.a-b.a.idx"),
        ({"measures": ["blue"]}, "measures: blue: unknown; did you mean bleu?"),
        ({"systems": {"a": {"--positon-encoding": "t5"}}}, "systems: a: train: --positon-encoding"),
        ({"systems": {"a": {"--arch": "transfromer"}}}, "did you mean transformer"),
        ({"systems": {"a": {"--position-encoding": "rotray"}}}, "rotray"),
        (
            {"systems": {"a": {"--arch": "transformer", "--position-encoding": "t5"}}},
            "systems: a: train: --position-encoding: --arch transformer is fairseq's own",
        ),
        ({"decode": {"--beem": 4}}, "decode: --beem: unknown flag; did you mean --beam or"),
        (
            {"systems": {"a": {"--arch": "roformer_base"}, "b": {"--position-encoding": "rotary"}}},
            "systems: b: is the same model as a",
        ),
        ({"search": {"--lr": ["1", "1"]}}, "search: 1: given twice"),
        ({"baseline": "rotray"}, "baseline: rotray: no such system; did you mean rotary?"),
        ({"average": 4}, "average: epochs: 4: there will be 3 checkpoints"),
        ({"average": {"updates": 2}}, "average: updates: 2: needs --save-interval-updates"),
        ({"budget": {"tokens": 9}}, "budget: tokens: 9: needs --batch-size"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_mistakes_in_a_plan_are_one_line(changes, said, read):
    def load():
        check_plan(read(**changes), CPU)

    assert said in message(load)


def test_a_good_plan_passes(read):
    check_plan(read(), CPU)


def test_a_key_given_twice_and_damaged_files_are_refused(read, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("systems:\n  a: {}\n  a: {--lr: 1}\n")
    assert "line 3 of the plan: a: given twice" in message(load_plan, path)
    path.write_text("systems: {")
    assert "is not YAML" in message(load_plan, path)
    assert "No such file" in message(load_plan, tmp_path / "nowhere.yaml")


def test_fp16_needs_a_gpu(read, tmp_path):
    plan = read()
    plan = load_plan(tmp_path / "plan.yaml", "--fp16 --max-tokens 200")
    assert plan.base["--max-tokens"] == "200"
    assert "base: --fp16: needs a GPU" in message(check_plan, plan, CPU)
    assert "follows no flag" in message(load_plan, tmp_path / "plan.yaml", "fp16")


def test_a_token_budget_is_a_number_of_updates(read):
    base = {"--arch": "transformer", "--batch-size": 4, "--tokens-per-sample": 8}
    plan = read(budget={"tokens": 1000}, base={**base, "--update-freq": 2}, gpus=2)
    (step, *_) = specs(plan, {})[0].steps
    assert step.words[step.words.index("--max-update") + 1] == "8"  # of 4 x 8 x 2 x 2 tokens


# --- runs


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
    ):
        assert digests.isdisjoint({spec.digest for spec in specs(read(**changes), {})}), changes
    more = {**plan["systems"], "t5": {"--position-encoding": "t5"}}
    assert digests < {spec.digest for spec in specs(read(systems=more, seeds=[1, 2, 3]), {})}
    (tmp_path / "data").rename(tmp_path / "moved")
    assert digests == {s.digest for s in specs(read(data=str(tmp_path / "moved")), {})}
    (tmp_path / "moved" / "train.a-b.a.idx").write_text("other")
    digest_of.cache_clear()
    assert digests.isdisjoint({s.digest for s in specs(read(data=str(tmp_path / "moved")), {})})


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
    assert [point.update for point in run.curve] == [10, 20, 30]
    assert run.curve[0].valid_loss - run.curve[0].train_loss == pytest.approx(1)
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


def test_the_speed_is_measured_once_for_every_system(read, tmp_path):
    plan, fake, alone = read(speed={"updates": 50}), FakeCommands(), FakeCommands()
    pools = [Pool(Worker(tmp_path, made, str), [CPU], str) for made in (fake, alone)]
    results = carry_out(plan, tmp_path, pools[0], str, pools[1])
    assert len(results) == len(load_results(tmp_path).runs) == 4
    assert [step for _, step in alone.ran] == ["speed", "speed"]
    speed = load_results(tmp_path).speed
    assert list(speed) == ["rotary", "stock"]
    assert speed["stock"].scores == {"tokens_per_second": (500 + 333) / 2}
    assert speed["stock"].peak_memory_mb == round(9.5 * 1024)
    carry_out(plan, tmp_path, pools[0], str, pools[1])
    assert len(alone.ran) == 2


def test_the_search_tries_the_same_values_for_every_system(read, tmp_path):
    fake = FakeCommands()
    plan = read(search={"--lr": ["1e-3", "2e-3", "4e-3"]})
    study(plan, tmp_path, fake)
    trials = [name for name, step in fake.ran if step == "train"]
    assert len(trials) == len(set(trials)) == 2 * 3 + 2  # seed 1 of the best is a trial already
    content = load_results(tmp_path).plan
    for system, tried in content["tried"].items():
        best = min(tried, key=tried.get)
        assert content["chosen"][system] == {"--lr": best.split()[1]}
        runs = load_results(tmp_path).of(system)
        assert [run.flags["--lr"] for run in runs] == 2 * [best.split()[1]]


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


# --- processes


def test_two_processes_do_not_work_on_one_study(read, tmp_path):
    with lock.hold(tmp_path / "study"):
        said = message(study, read(), tmp_path / "study", FakeCommands())
        assert f"process {os.getpid()}" in said and "is at work on this study" in said
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
    with lock.hold(tmp_path) as held:
        ended = processes(["python", "-c", "print(6 * 7)"], tmp_path / "log", os.environ, held)
        assert ended.status == 0 and ended.peak_memory_mb > 1
        assert (tmp_path / "log").read_text().endswith("\n42\n")
        crash = ["python", "-c", "import os; os.kill(os.getpid(), 9)"]
        assert processes(crash, tmp_path / "log", os.environ, held).status == -9
    assert program(["fairseq-eval-lm", "x"])[1:] == ["-m", "fairseq_cli.eval_lm", "x"]


def test_a_surviving_command_keeps_its_run_locked(tmp_path):
    with lock.hold(tmp_path) as held:
        child = os.fork()
        if child == 0:
            os.dup(held)
            time.sleep(30)
            os._exit(0)
    try:
        assert lock.holder(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert lock.holder(tmp_path) is None


def test_devices_are_shared_out():
    cores = os.sched_getaffinity(0)
    assert [d.gpus for d in devices_of(["0", "1"], 1, 0, 9)] == [("0",), ("1",)]
    assert [d.gpus for d in devices_of(["0"], 1, 3, 9)] == 3 * [("0",)]
    assert [d.gpus for d in devices_of(["0", "1", "2", "3"], 2, 0, 9)] == [("0", "1"), ("2", "3")]
    assert [d.gpus for d in devices_of(["0", "1", "2"], 8, 0, 9)] == [("0", "1")]
    assert [d.threads for d in devices_of([], 1, 1, 9)] == [len(cores)]


def test_fewer_gpus_gather_the_same_batch(read, tmp_path):
    spec = specs(read(gpus=8), {})[0]
    for gpus, frequency in ((1, 8), (2, 4)):
        lines = dry_run([spec], tmp_path, Device(tuple(map(str, range(gpus)))))
        assert f"--update-freq {frequency} --distributed-world-size {gpus}" in lines[1]
    assert "--cpu" in dry_run([spec], tmp_path, CPU)[1]
    assert '--user-dir "$(fairseq-posenc path)"' in lines[1]


def test_the_command_shows_and_carries_out_a_plan(read, tmp_path, monkeypatch, capsys):
    read()
    reported, path = [], tmp_path / "plan.yaml"

    def fail(words, epoch=0):
        path.write_text(path.read_text() + "title: Another\n")
        return 0

    def pool(folder, devices, note):
        return Pool(Worker(folder, FakeCommands(fail=fail), note), devices, lambda: None)

    monkeypatch.setattr(study_module, "local_pool", pool)
    monkeypatch.setattr(cli, "_report", reported.append)
    words = ["study", str(path), "--output", str(tmp_path / "study"), "--devices", "cpu"]
    assert main([*words, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("fairseq-train ") == 4 and shown.count("fairseq-generate ") == 4
    assert "rotary-seed1" in shown and not (tmp_path / "study").exists()
    assert main([*words, "--status"]) == 0
    assert capsys.readouterr().out.endswith("4 runs: 4 waiting\n")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert main([*words, "--jobs", "1"]) == 0
    finally:
        signal.signal(signal.SIGTERM, handler)
    said = capsys.readouterr().out
    assert "plan.yaml: was changed meanwhile" in said and "4 of 4 runs are done" in said
    assert reported == [tmp_path / "study"]
    assert load_results(tmp_path / "study").plan["title"] == ""
    read()
    assert "--jobs 0: expected a number above 0" in message(main, [*words, "--jobs", "0"])
    assert "--slurm gpu: 'gpu': expected KEY=VALUE" in message(parse_settings, "gpu")


def forked(words, log, environment, held):
    """Run a command of a study in a fork of the tests' server."""
    name, *rest = program(words)[1:]
    assert name == "-m"
    finished = Command(rest[0], rest[1:]).finish()
    with open(log, "a") as stream:
        stream.write(finished.out + finished.err)
    return Ended(finished.status, 1.0, 1.0)


def test_a_study_by_fairseq_itself(plan, toy, read, tmp_path):
    shutil.rmtree(tmp_path / "data")
    reference = toy.text / "test24"
    languages = {"source_lang": "src", "target_lang": "tgt"}
    data = {"folder": str(toy.joined), "tokenizer": "none", "subwords": "none", **languages}
    data["references"] = str(reference.with_suffix(".tgt"))
    data["sources"] = str(reference.with_suffix(".src"))
    base = "--arch roformer_tiny --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 "
    base += "--share-all-embeddings --criterion label_smoothed_cross_entropy --optimizer adam "
    base += "--lr 0.01 --max-tokens 160 --log-interval 1"
    changes = {"data": data, "base": base, "systems": {"rotary": {}}, "seeds": [1]}
    changed = read(**changes, decode={"--max-len-b": 10}, budget={"epochs": 2})
    check_plan(changed, CPU)
    study(changed, tmp_path / "study", forked)
    (run,) = load_results(tmp_path / "study").runs
    assert run.done, run.error
    assert run.parameters > 1000 and run.updates == 6 and run.tokens > 300
    assert len(run.curve) == run.updates
    assert run.scores["loss"] > 0 and 0 <= run.scores["bleu"] <= 100
    assert re.match(r"nrefs:1\|.*\|version:", run.signatures["bleu"])
    assert (run.folder / "references.txt").read_text() == Path(data["references"]).read_text()
