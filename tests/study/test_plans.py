"""The plans in examples/study, and mistakes in plans, which are refused before anything runs."""

from pathlib import Path

import pytest
import yaml
from support.recipes import recipe_module

from fairseq_posenc.encodings import ENCODINGS

pytestmark = pytest.mark.properties

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "study"
PLANS = sorted(FOLDER.glob("*.yaml"))
trainings, plans, checks = (recipe_module("study", name) for name in ("trainings", "plan", "check"))
#: Plans that are quick to check; together they cover every recipe.
QUICK = ("multi30k", "masked_lm", "documents", "document_mask", "lengths_small")
PAIR = "en-de"
SCORES = {"CoLA": "mcc", "MRPC": "accuracy,f1", "QQP": "accuracy,f1"}


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_data(content):
    """Write stand-ins for the data that a plan names, except for data that the study makes."""
    for system in content["systems"].values():
        if "data" in (system or {}):
            make_data({**content, "data": system["data"], "systems": {}, "finetune": {}})
    for flags in (content["base"], *content["systems"].values()):
        for start in filter(None, map((flags or {}).get, trainings.STARTS)):
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
    for name in ("dict.txt", "dict.en.txt", "dict.de.txt", "bpe.codes"):
        write(data / name, "word 1\n")
    for name in content.get("finetune", {}).get("tasks", ()):
        folder = Path(content["finetune"]["data"], name, "data-bin")
        numbers = "--metrics pearson,spearman --num-classes 1 --regression-target"
        classes = f"--metrics {SCORES.get(name, 'accuracy')} --num-classes 2"
        words = numbers if name == "STS-B" else classes
        write(folder / "task", f"2 32 2e-5 6 --best-checkpoint-metric x {words}\n")
        write(folder / "label" / "train.label", "0\n" * 100)
        write(folder / "input0" / "dict.txt", "word 1\n")


@pytest.mark.parametrize(
    "path",
    [p if p.stem in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in PLANS],
    ids=lambda path: path.stem,
)
def test_a_shipped_plan_is_one_that_fairseq_takes(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_data(yaml.safe_load(path.read_text()))
    plan = plans.load(str(path))
    assert plan["title"] and (len(plan["seeds"]) >= 3 or "one seed" in plan["about"])
    assert all(isinstance(v, (str, bool)) for v in plan["base"].values())  # 1e-3 stays text
    if plan["user_dir"]:  # the path that other tests use
        plan["user_dir"] = str(FOLDER.parents[1] / plan["user_dir"])
    checks.check(plan, plan["gpus"])


@pytest.mark.parametrize("name", ["language_model", "lengths", "lengths_small"])
def test_plans_of_all_encodings_have_each_that_is_registered(name):
    plan = plans.load(str(FOLDER / f"{name}.yaml"))
    assert "All position encodings of the plug-in" in plan["about"]
    assert {one["--position-encoding"] for one in plan["systems"].values()} == set(ENCODINGS)


PLAN = """
recipe: translation
data: data
base: {--arch: posenc_transformer, --max-tokens: 100, --optimizer: adam}
systems: {rotary: {--position-encoding: rotary}, stock: {--arch: transformer}}
seeds: [1, 2]
budget: {epochs: 3}
"""
MISTAKES = [
    ("budget: {epochs: 3}", "budget: {epoch: 3}", "budget: epoch: no such key"),
    ("budget: {epochs: 3}", "", "budget: missing; see the plans in examples/study"),
    ("seeds: [1, 2]", "seeds: [1, x]", "seeds: x: expected a whole number from 0 to"),
    ("--optimizer: adam", "--seed: 3", "base: --seed: give seeds instead"),
    ("--optimizer: adam", "lr: 3", "base: lr: is not a flag such as --lr"),
    ("--optimizer: adam", "--lr: [1, 2]", "base: --lr: expected a text, a number, true or false"),
    ("stock: {", "Rotary: {", "systems: two names differ only in upper and lower case"),
    ("recipe: translation", "recipe: speech", "recipe: speech: expected one of translation"),
    ("seeds:", "baseline: none\nseeds:", "baseline: none: no such system"),
    ("seeds:", "search_edges: [1]\nseeds:", "search_edges: 1: expected a value below the search"),
    ("seeds:", "subset: [test@5]\nseeds:", "subset: test@5: needs averaged checkpoints"),
    ("seeds:", "search: {--lr: 1, --x: 2}\nseeds:", "search: expected one flag with"),
    ("seeds: [1, 2]", "seeds: [1, 2", "while parsing a flow sequence"),
    (
        "base: {",
        "average: {updates: 2}\nsubset: [test, test@7]\nbase: {--save-interval-updates: 5, ",
        "subset: test@7: checkpoints are at every 5 updates",
    ),
    # mistakes that fairseq's parser or the data reveal
    ("--optimizer: adam", "--otpimizer: adam", "systems: rotary: --otpimizer: unknown flag"),
    ("--arch: transformer}", "--position-encoding: rotary}", "systems: stock: is the same model"),
    ("--optimizer: adam", "--fp16: true", "systems: rotary: --fp16: needs a GPU"),
    ("seeds:", "measures: [bleu, rouge]\nseeds:", "measures: rouge: unknown"),
    ("seeds:", "average: {epochs: 4}\nseeds:", "average: epochs: 4: there will be 3"),
    ("data: data", "data: absent", "data: absent: no such folder"),
    ("data: data", "data: {folder: data, references: none}", "data: references: none: no"),
]  # fmt: skip


@pytest.mark.parametrize("before, after, said", MISTAKES, ids=[entry[2][:40] for entry in MISTAKES])
def test_a_mistake_is_one_line(before, after, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert before in PLAN
    make_data({**yaml.safe_load(PLAN), "data": "data"})
    (tmp_path / "plan.yaml").write_text(PLAN.replace(before, after, 1))
    with pytest.raises(plans.Wrong) as error:
        checks.check(plans.load("plan.yaml"), 0)
    message = str(error.value)
    assert "\n" not in message and message.replace("plan.yaml: ", "").startswith(said), message
