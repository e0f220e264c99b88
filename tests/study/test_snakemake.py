"""Studies that Snakemake runs, with stand-ins for fairseq's commands."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import waiting

pytestmark = pytest.mark.journeys

SNAKEFILE = Path(__file__).resolve().parents[2] / "examples" / "study" / "Snakefile"
STAND_IN = """#!{python}
import hashlib, json, os, sys, time
from pathlib import Path

name, words = Path(sys.argv[0]).name, sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(name + " " + " ".join(words) + "\\n")
given = {{a: b for a, b in zip(words, words[1:]) if a.startswith("--")}}
if name == "fairseq-posenc":
    if words[0] == "path":
        print("PLUG-IN")
    else:
        Path(given["--output"]).write_text("average")
elif name == "fairseq-train":
    folder = Path(given["--save-dir"])
    last = folder / "checkpoint_last.pt"
    begun = int(last.read_text()) if last.exists() else 0
    print("num. shared model params: 1,234 (num. trained: 1,234)")
    number = int(hashlib.sha256((given["--lr"] + given["--seed"]).encode()).hexdigest(), 16) % 90
    for epoch in range(begun + 1, 4):
        loss = f"{{9 - epoch - number / 100:.3f}}"
        wall = {{"train_wpb": "7", "train_num_updates": str(10 * epoch), "train_train_wall": "2"}}
        print(json.dumps({{"epoch": epoch, "loss": loss, "num_updates": str(10 * epoch)}}))
        valid = {{"valid_loss": loss, "valid_num_updates": str(10 * epoch)}}
        print(json.dumps({{"epoch": epoch, **valid}}))
        print(json.dumps({{"epoch": epoch, **wall}}), flush=True)
        last.write_text(str(epoch))
        time.sleep(float(os.environ.get("PAUSE", 0)))
    print("done training in 3.0 seconds")
elif name == "fairseq-validate":
    log = Path(given["--path"]).with_name("train.log").read_text()
    losses = [json.loads(line)["valid_loss"] for line in log.splitlines() if "valid_loss" in line]
    print(json.dumps({{"valid_loss": losses[-1], "valid_nll_loss": "3"}}))
elif name == "fairseq-generate":
    place = Path(given["--results-path"], "generate-" + given["--gen-subset"] + ".txt")
    place.parent.mkdir(exist_ok=True)
    place.write_text("D-1\\t-1\\tc d\\nD-0\\t-1\\ta b\\n")
"""


PLAN = """
recipe: translation
data: data
base: {--arch: posenc_transformer, --max-tokens: "100", --optimizer: adam}
systems: {rotary: {--position-encoding: rotary}, stock: {--arch: transformer}}
seeds: [1, 2]
budget: {epochs: 3}
average: {epochs: 2}
search: {--lr: ["1e-3", "3e-3"]}
"""


class Workflow:
    """A study that Snakemake runs in a separate folder, with stand-ins for fairseq's commands.

    Args:
        snakemake: the path of the program.
        folder: the folder of the plan, its data and the runs.
    """

    def __init__(self, snakemake, folder):
        self.snakemake, self.folder = snakemake, folder
        self.calls = folder / "calls"
        (folder / "bin").mkdir()
        for name in ("fairseq-posenc", "fairseq-train", "fairseq-validate", "fairseq-generate"):
            program = folder / "bin" / name
            program.write_text(STAND_IN.format(python=sys.executable, calls=str(self.calls)))
            program.chmod(0o755)
        # skips check.py, which other tests cover
        (folder / "bin" / "python").write_text(f"""#!/usr/bin/env bash
[[ $1 == */check.py ]] || exec {sys.executable} "$@"
""")
        (folder / "bin" / "python").chmod(0o755)
        (folder / "data").mkdir()
        for part in ("train", "valid", "test"):
            for lang in "ab":
                (folder / "data" / f"{part}.a-b.{lang}.idx").write_text(part)
        for lang in "ab":
            (folder / "data" / f"test.{lang}").write_text("a b\nc d\n")
        self.plan = yaml.safe_load(PLAN)

    def start(self, *words, **variables):
        (self.folder / "plan.yaml").write_text(yaml.safe_dump(self.plan, sort_keys=False))
        path = os.pathsep.join([str(self.folder / "bin"), str(Path(sys.executable).parent)])
        environment = {**os.environ, **variables, "PATH": path + os.pathsep + os.environ["PATH"]}
        return subprocess.Popen(
            [self.snakemake, "-s", str(SNAKEFILE), "-c", "2", *words, "--config", "plan=plan.yaml"],
            cwd=str(self.folder), env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words, **variables):
        """Run Snakemake; returns its status and output.  The stand-ins write to ``calls``."""
        self.calls.write_text("")
        process = self.start(*words, **variables)
        said, _ = process.communicate(timeout=600)
        return process.returncode, said

    def called(self, name):
        """The calls of a command during the last run."""
        return [line for line in self.calls.read_text().splitlines() if line.startswith(name + " ")]

    def results(self):
        """All results, without entries that differ between repetitions."""
        found = {}
        for path in sorted(self.folder.glob("runs/plan/runs/*/result.json")):
            found[path.parent.name] = json.loads(path.read_text())
            for key in ("seconds", "environment"):
                found[path.parent.name].pop(key)
        return found


@pytest.fixture
def workflow(tmp_path):
    """A study with two systems, two seeds and a search over two values."""
    snakemake = shutil.which(os.environ.get("SNAKEMAKE", "snakemake"))
    if snakemake is None:
        pytest.skip("Snakemake is not installed; set SNAKEMAKE to its path")
    return Workflow(snakemake, tmp_path)


def asked(said):
    """The number of jobs of each rule in the output of a dry run."""
    jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", said, re.M)}
    return {name: count for name, count in jobs.items() if name not in ("total", "study", "system")}


def test_a_study_searches_scores_and_repeats_what_a_change_concerns(workflow):
    status, said = workflow.run()
    assert status == 0, said
    # two systems with two values each, then each with the better value and the other seed
    assert len(workflow.called("fairseq-train")) == 6
    assert len(workflow.called("fairseq-generate")) == 4
    results = workflow.results()
    plan = yaml.safe_load((workflow.folder / "runs" / "plan" / "plan.yaml").read_text())
    assert sorted(plan["runs"]) == sorted(results)
    assert plan["measures"]["bleu"] == {"better": "higher", "label": "BLEU", "unit": ""}
    chosen = plan["chosen"]["rotary"]["--lr"]
    tried = plan["tried"]["rotary"]
    assert sorted(tried) == ["--lr 1e-3", "--lr 3e-3"]
    assert min(tried, key=tried.get) == f"--lr {chosen}"
    (run,) = (one for one in results.values() if (one["system"], one["seed"]) == ("rotary", 2))
    assert run["flags"] == {"--position-encoding": "rotary", "--lr": chosen}
    assert (run["updates"], run["tokens"], run["parameters"]) == (30, 210, 1234)
    assert run["scores"]["perplexity"] == 8.0 and run["scores"]["chrf"] == 100.0
    commands = [command.split(" ")[0] for command in run["commands"]]
    assert commands == ["fairseq-train", "fairseq-posenc", "fairseq-validate", "fairseq-generate"]
    folder = workflow.folder / "runs" / "plan" / "runs" / plan["runs"][0]
    assert (folder / run["files"]["hypotheses"]).read_text() == "a b\nc d\n"
    assert (folder / run["checkpoint"]).is_file()

    data = workflow.folder / "data" / "train.a-b.a.idx"
    os.utime(str(data))  # the content is the same
    workflow.plan["decode"] = {"--beam": "9"}
    assert asked(workflow.run("-n")[1]) == {"translate": 4, "result": 4}
    workflow.plan["systems"]["rotary"]["--dropout"] = "0.3"
    told = asked(workflow.run("-n")[1])
    assert (told["train"], told["translate"], told["choose"]) == (2, 2, 1)
    assert not workflow.called("fairseq-train")


def test_killed_and_started_again_it_ends_as_if_it_had_not_been(workflow):
    workflow.plan["systems"].pop("stock")
    del workflow.plan["search"]
    workflow.plan.update(seeds=[1], base={**workflow.plan["base"], "--lr": "1"})
    workflow.run()
    whole = workflow.results()
    shutil.rmtree(str(workflow.folder / "runs" / "plan" / "runs"))
    shutil.rmtree(str(workflow.folder / "runs" / "plan" / "trained"))
    process = workflow.start(PAUSE="1")
    log = "runs/plan/trained/*/train.log"
    begun = '"num_updates": "10"'
    waiting.until(
        lambda: any(begun in path.read_text() for path in workflow.folder.glob(log)),
        "a first epoch",
        seconds=120,
    )
    process.send_signal(signal.SIGKILL)  # the training continues to its end
    process.communicate()
    assert workflow.run("--unlock")[0] == 0
    status, said = workflow.run()
    assert status == 0, said
    assert workflow.results() == whole
    assert not workflow.called("fairseq-train")  # the second run waited for the training


def test_jobs_share_the_gpus_of_a_machine(tmp_path):
    """Jobs take free GPUs, and share GPUs if none are free."""
    commands = f". {SNAKEFILE.parent}/commands.sh; gpus %d; echo $CUDA_VISIBLE_DEVICES; read -r"
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "3,5", "TMPDIR": str(tmp_path)}
    jobs = []
    for number in (1, 1, 2):
        words = ["bash", "-c", commands % number]
        pipe = subprocess.PIPE
        jobs.append(subprocess.Popen(words, env=variables, stdin=pipe, stdout=pipe, text=True))
        jobs[-1].devices = jobs[-1].stdout.readline().strip()
    for job in jobs:
        job.communicate()
    assert [job.devices for job in jobs] == ["3", "5", "3,5"]


def test_a_search_goes_on_at_its_edge_and_an_archive_is_done(workflow):
    """The search has its own seeds, and each training is scored at two budgets."""
    del workflow.plan["systems"]["stock"]
    workflow.plan["base"]["--save-interval-updates"] = "10"
    workflow.plan.update(
        seeds=[1], search_seeds=[11, 12], search={"--lr": ["3e-3", "6e-3"]},
        search_edges=["1e-3", "9e-3"], budget={"updates": 30}, average={"updates": 2},
        subset=["test", "test@20"],
    )  # fmt: skip
    status, said = workflow.run()
    assert status == 0, said
    study = workflow.folder / "runs" / "plan"
    plan = yaml.safe_load((study / "plan.yaml").read_text())
    tried = {name.partition(" ")[2]: losses for name, losses in plan["tried"]["rotary"].items()}
    inner = {value: tried.pop(value) for value in ("3e-3", "6e-3")}
    beyond = {"3e-3": "1e-3", "6e-3": "9e-3"}[min(inner, key=inner.get)]
    assert list(tried) == [beyond]
    trained = [
        re.search(r"--lr (\S+) .*--seed (\d+)", c).groups()
        for c in workflow.called("fairseq-train")
    ]
    chosen = plan["chosen"]["rotary"]["--lr"]
    assert sorted(trained) == sorted(
        [*((value, seed) for value in (*inner, beyond) for seed in ("11", "12")), (chosen, "1")]
    )
    (run,) = workflow.results().values()
    assert {"bleu", "bleu_20"} <= set(run["scores"]) and "bleu_20" in plan["measures"]
    averages = [command for command in run["commands"] if " average " in command]
    assert [" --checkpoint-upper-bound 20 " in command for command in averages] == [False, True]
    shutil.rmtree(str(study / "trained"))
    workflow.plan["seeds"] = [1, 2]  # one of them is archived
    told = asked(workflow.run("-n")[1])
    assert (told["train"], told["result"], told.get("choose")) == (1, 1, None)
