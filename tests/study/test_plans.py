"""The plans in examples/study: every command line of every system is one that fairseq takes."""

from argparse import Namespace
from pathlib import Path

import pytest
import yaml
from fairseq.utils import import_user_module
from support.studies import message

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import main
from fairseq_posenc.cli import study as cli
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.steps.training import STARTS
from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.commands import Device
from fairseq_posenc.study.plan import load_plan
from fairseq_posenc.study.recipes import RECIPES
from fairseq_posenc.study.runs import specs

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "study"
PLANS = sorted(FOLDER.glob("*.yaml"))
TABLES = FOLDER.parent
PAIR = "en-de"


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Makes the data folders that a plan names, if its recipe does not, and works beside them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(TABLES)

    def beside(content):
        for system in content["systems"].values():
            if "data" in (system or {}):
                beside({**content, "data": system["data"], "systems": {}, "finetune": {}})
        for flags in (content["base"], *content["systems"].values()):
            for start in filter(None, map((flags or {}).get, STARTS)):
                for seed in content["seeds"]:
                    write(Path(start.replace("{seed}", str(seed))), "weights")
        named = content["data"] if isinstance(content["data"], dict) else {}
        for key in {"choices", "documents"}.intersection(named):
            write(Path(named[key]))
        data = Path(named["folder"] if named else content["data"])
        for split in ("train", "valid", "test"):
            write(data / f"{split}.idx")
            for lang in ("en", "de"):
                write(data / f"{split}.{PAIR}.{lang}.idx")
                write(data / f"reference.{split}.{lang}")
        settings = "SOURCE=en\nTARGET=de\nTOKENIZER=moses\nSUBWORDS=none\nCONTEXT=0,3\n"
        write(data / "text.settings", settings)
        for name in ("dict.txt", "dict.en.txt", "dict.de.txt"):
            write(data / name, "word 1\n")
        described = {}
        for recipe in ("glue", "clue"):
            described.update(yaml.safe_load((TABLES / recipe / "tasks.yaml").read_text()))
        for name in content.get("finetune", {}).get("tasks", ()):
            folder = Path(content["finetune"]["data"], name)
            entry = dict(described[name])
            entry.update({} if "regression" in entry else {"labels": ["0", "1"]})
            write(folder / "task.yaml", yaml.safe_dump({name: entry}))
            write(folder / "examples", "100\n")
            write(folder / "input0" / "dict.txt", "word 1\n")

    return beside


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_shipped_plan_is_one_that_fairseq_takes(path, beside):
    beside(yaml.safe_load(path.read_text()))
    plan = load_plan(path)
    if plan.user_dir:  # the path without the link, as other tests have it
        import_user_module(Namespace(user_dir=str(Path(plan.user_dir).resolve())))
    assert plan.title and plan.about and len(plan.seeds) >= 3
    # generated data with few training samples, and all the lengths
    few = (one._replace(samples=len(one.lengths), test_samples=2) for one in plan.generated)
    plan = plan._replace(generated=tuple(few))
    RECIPES[plan.recipe].prepare(plan)
    check_plan(plan, Device(("0",)))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_shipped_plan_is_shown_without_a_gpu_and_without_data(
    path, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(TABLES)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(cli, "load_plug_in", lambda user_dir: None)
    plan = load_plan(path)
    if plan.user_dir:  # the path without the link, as other tests have it
        import_user_module(Namespace(user_dir=str(Path(plan.user_dir).resolve())))
    assert main(["study", str(path), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    made_by = "the study makes it" if plan.generated else "make it with examples"
    assert shown.startswith("# data: ") and f": no such folder; {made_by}" in shown
    trainings = [line for line in shown.split("\n") if line.startswith("fairseq-train")]
    search = plan.search and len(next(iter(plan.search.values())))
    runs = len(plan.systems) * (search * plan.search_seeds if search else len(plan.seeds))
    assert len(trainings) == runs * max(1, len(plan.generated))
    on_gpus = plan.gpus > 1 or "--fp16" in plan.base
    assert all(("--cpu" in line) != on_gpus for line in trainings)
    assert all(f"--distributed-world-size {plan.gpus}" in line for line in trainings)
    assert not list(tmp_path.glob("runs/*/plan.yaml"))
    assert main(["study", str(path), "--status"]) == 0
    shown = capsys.readouterr().out
    assert "waiting" in shown and "without data, none is shown as done" in shown
    if not plan.generated:  # data that only a recipe can make
        refused = message(main, ["study", str(path)])
        assert "no such folder" in refused or "needs a GPU" in refused


@pytest.mark.parametrize("name", ["language_model", "lengths", "lengths_small"])
def test_plans_of_all_encodings_have_each_that_is_registered(name):
    plan = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert "All position encodings of the plug-in" in plan["about"]
    compared = {flags["--position-encoding"] for flags in plan["systems"].values()}
    assert compared == set(ENCODINGS)


def test_every_table_has_a_plan_for_a_cluster_and_one_for_a_cpu():
    names = {path.stem for path in PLANS}
    tables = {name for name in names if "table" in name}
    assert {f"{name}_small" for name in tables if not name.endswith("_small")} <= tables
    assert len(tables) == 16 and {"multi30k", "masked_lm", "language_model"} <= names
    assert all(f"{name}.yaml" in (FOLDER / "README.md").read_text() for name in names)


def test_the_scores_of_a_paper_choose_and_are_reported(beside):
    """F1 of MRPC and QQP, and Spearman's correlation of STS-B, as RoFormer's Table 2 has them."""
    path = FOLDER / "roformer_table2.yaml"
    beside(yaml.safe_load(path.read_text()))
    plan = load_plan(path)
    choosing = {
        step.name.partition("-lr")[0]: step.words[step.words.index("--best-checkpoint-metric") + 1]
        for step in specs(plan, {})[0].steps
        if "--best-checkpoint-metric" in step.words
    }
    assert {f"{task}_{score}" for task, score in choosing.items()} == {*plan.measures} - {"loss"}
    plan.finetune["paper"] = "roberto"
    with pytest.raises(UsageError, match="paper: roberto: MRPC has settings of roberta"):
        specs(plan, {})
