"""Commands that stand in for fairseq's in a study on Snakemake, and Snakemake itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
    if os.environ.get("DIVERGES", "never") in words:
        print("num. shared model params: 12 (num. trained: 12)")
        sys.exit("FloatingPointError: gradients are NaN/Inf")
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


class Workflow:
    """A study on Snakemake with stand-ins for fairseq's commands, in a folder of its own.

    Args:
        snakemake: the program.
        folder: where the plan, its data and the runs are.
    """

    def __init__(self, snakemake, folder):
        self.snakemake, self.folder = snakemake, folder
        self.calls = folder / "calls"
        (folder / "bin").mkdir()
        for name in ("fairseq-posenc", "fairseq-train", "fairseq-validate", "fairseq-generate"):
            program = folder / "bin" / name
            program.write_text(STAND_IN.format(python=sys.executable, calls=str(self.calls)))
            program.chmod(0o755)
        # other tests say what check.py refuses
        (folder / "bin" / "python").write_text(f"""#!/usr/bin/env bash
[[ $1 == */check.py && -z ${{CHECKS:-}} ]] || exec {sys.executable} "$@"
""")
        (folder / "bin" / "python").chmod(0o755)
        (folder / "data").mkdir()
        for part in ("train", "valid", "test"):
            for lang in "ab":
                (folder / "data" / f"{part}.a-b.{lang}.idx").write_text(part)
        for lang in "ab":
            (folder / "data" / f"test.{lang}").write_text("a b\nc d\n")
        self.plan = {
            "recipe": "translation",
            "data": "data",
            "base": {"--arch": "posenc_transformer", "--max-tokens": "100", "--optimizer": "adam"},
            "systems": {
                "rotary": {"--position-encoding": "rotary"},
                "stock": {"--arch": "transformer"},
            },
            "seeds": [1, 2],
            "budget": {"epochs": 3},
            "average": {"epochs": 2},
            "search": {"--lr": ["1e-3", "3e-3"]},
        }

    def start(self, *words, **variables):
        """Start Snakemake on the plan as it is now."""
        (self.folder / "plan.yaml").write_text(yaml.safe_dump(self.plan, sort_keys=False))
        path = os.pathsep.join([str(self.folder / "bin"), str(Path(sys.executable).parent)])
        environment = {**os.environ, **variables, "PATH": path + os.pathsep + os.environ["PATH"]}
        return subprocess.Popen(
            [self.snakemake, "-s", str(SNAKEFILE), "-c", "2", *words, "--config", "plan=plan.yaml"],
            cwd=str(self.folder), env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words, **variables):
        """What Snakemake says; the calls of fairseq's commands meanwhile are those in ``calls``."""
        self.calls.write_text("")
        process = self.start(*words, **variables)
        said, _ = process.communicate(timeout=600)
        return process.returncode, said

    def called(self, name):
        """The calls of a command in the last run."""
        return [line for line in self.calls.read_text().splitlines() if line.startswith(name + " ")]

    def results(self):
        """All results, without what differs between repetitions."""
        found = {}
        for path in sorted(self.folder.glob("runs/plan/runs/*/result.json")):
            found[path.parent.name] = json.loads(path.read_text())
            for key in ("seconds", "environment"):
                found[path.parent.name].pop(key)
        return found


@pytest.fixture
def workflow(tmp_path):
    """A study of two systems, two seeds and a search of two values."""
    snakemake = shutil.which(os.environ.get("SNAKEMAKE", "snakemake"))
    if snakemake is None:
        pytest.skip("Snakemake is not installed; give its place in SNAKEMAKE")
    return Workflow(snakemake, tmp_path)
