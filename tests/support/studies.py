"""A small plan with made-up data, and studies of it; by ``pytest_plugins``."""

import json

import pytest
import yaml
from support.commands import Command
from support.fake_fairseq import SENTENCES

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.processes import Ended, program
from fairseq_posenc.study.commands import Device
from fairseq_posenc.study.plan import load_plan
from fairseq_posenc.study.study import Pool, carry_out
from fairseq_posenc.study.work import Worker

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


def forked(words, log, environment, held):
    """Run a command of a study in a fork of the tests' server."""
    name, *rest = program(words)[1:]
    assert name == "-m"
    finished = Command(rest[0], rest[1:]).finish()
    with open(log, "a") as stream:
        stream.write(finished.out + finished.err)
    return Ended(finished.status, 1.0, 1.0)
