"""Plans of studies: what is refused in one line, and what a budget in tokens means."""

import pytest
from support.studies import CPU, message

from fairseq_posenc.study.checks import check_plan
from fairseq_posenc.study.plan import load_plan
from fairseq_posenc.study.runs import specs

pytest_plugins = ["support.studies"]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"systms": {}}, "systms: unknown key; did you mean systems?"),
        ({"recipe": "translatoin"}, "recipe: translatoin: unknown; did you mean translation?"),
        ({"seeds": [1, 2, 1]}, "seeds: [1, 2, 1]: 1: given twice"),
        ({"seeds": []}, "seeds: []: expected one or more values"),
        ({"seeds": [2**64]}, "expected a whole number from 0 to 4,294,967,295"),
        ({"name": "x" * 300}, "has 300 characters; expected 100 or fewer"),
        ({"systems": {"x" * 300: {}}}, "has 300 characters; expected 100 or fewer"),
        ({"base": {"--save-dir=/x": True}}, "--save-dir=/x: is no flag; write --save-dir: /x"),
        ({"base": {"--arch": "transformer", "--lr": "1e-3;x"}}, "systems: rotary: train: --lr"),
        ({"base": "--arch x y"}, "plan.yaml: base: --arch x y: y follows no flag"),
        ({"budget": {"hours": float("inf")}}, "budget: hours: .inf: inf: expected a number above"),
        ({"finetune": {"data": "x", "tasks": [["a"]]}}, "finetune: tasks: [[a]]: expected letters"),
        ({"budget": {"epoch": 3}}, "budget: epoch: unknown key; did you mean epochs?"),
        ({"budget": {"epochs": 3, "updates": 9}}, "budget: expected one of epochs, updates"),
        ({"budget": {"epochs": 0}}, "budget: epochs: 0: expected a whole number above 0"),
        ({"base": {"--max-epoch": 3}}, "base: --max-epoch: give budget instead"),
        ({"base": {"lr": 3}}, "base: lr: is no flag; write --lr"),
        ({"base": {"--lr": [3]}}, "base: --lr: expected a text"),
        ({"systems": {"a": {"--seed": 3}}}, "systems: a: --seed: give seeds instead"),
        ({"systems": {"a/b": {}}}, "systems: name: a/b: expected letters"),
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
        ({"data": {"source_lang": "a"}}, "data: folder: missing"),
        ({"finetune": {"data": "x"}}, "finetune: tasks: missing"),
        ({"finetune": {"data": "x", "tasks": ["y"]}}, "finetune: has no meaning for the recipe tr"),
        ({"extrapolation": {"lengths": [8]}}, "extrapolation: has no meaning for the recipe tr"),
        ({"finetune": {"data": "x", "tasks": {"y": {"--save-dir": "z"}}}}, "finetune: y: --save-d"),
        ({"search": {"--max-update": [1, 2]}}, "search: --max-update: give budget instead"),
        ({"search": {"--lr": []}}, "search: expected one flag with a list of values"),
        ({"search": {"data": ["x", "y"]}}, "search: data: is no flag; write --data"),
        ({"search_seeds": 9}, "search_seeds: 9: there are "),
        ({"base": {"--update-freq": "x"}}, "base: --update-freq x: expected a whole number above"),
        (
            {"average": {"updates": 2}, "base": {"--save-interval-updates": "x"}},
            "base: --save-interval-updates x: expected a whole number above 0",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_mistakes_in_a_plan_are_one_line(changes, said, read):
    def load():
        check_plan(read(**changes), CPU)

    assert said in message(load)


def test_a_good_plan_passes(read):
    check_plan(read(), CPU)
    assert read(name=None).name == "plan"


def test_a_key_given_twice_and_damaged_files_are_refused(read, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("systems:\n  a: {}\n  a: {--lr: 1}\n")
    assert "line 3: a: given twice" in message(load_plan, path)
    path.write_text("data: {{x}}")
    assert "line 1: {'x': None}: expected a name" in message(load_plan, path)
    for value in ("9" * 5000, "2001-99-99"):
        path.write_text(f"seeds: [{value}]")
        assert "has a number or a date that cannot be read" in message(load_plan, path)
    path.write_text("systems: {")
    assert "this is not YAML" in message(load_plan, path)
    assert "No such file" in message(load_plan, tmp_path / "nowhere.yaml")


def test_fp16_needs_a_gpu(read, tmp_path):
    plan = read()
    plan = load_plan(tmp_path / "plan.yaml", "--fp16 --max-tokens 200")
    assert plan.base["--max-tokens"] == "200"
    assert "base: --fp16: needs a GPU" in message(check_plan, plan, CPU)
    plan = read(systems={"a": {"--memory-efficient-fp16": True}})
    assert "systems: a: --memory-efficient-fp16: needs a GPU" in message(check_plan, plan, CPU)
    assert "follows no flag" in message(load_plan, tmp_path / "plan.yaml", "fp16")
    assert "close the quotes" in message(load_plan, tmp_path / "plan.yaml", "--lr '1")


def test_a_merge_key_may_be_overridden(read, tmp_path):
    read(base={"--lr": 1}, systems={"a": {}})
    text = "systems:\n  a: &a {--dropout: 1, --arch: x}\n  b: {<<: *a, --dropout: 2}\n"
    path = tmp_path / "plan.yaml"
    path.write_text(path.read_text().replace("systems:\n  a: {}\n", text))
    assert load_plan(path).systems["b"] == {"--dropout": "2", "--arch": "x"}


def test_a_token_budget_is_a_number_of_updates(read):
    base = {"--arch": "transformer", "--batch-size": 4, "--tokens-per-sample": 8}
    plan = read(budget={"tokens": 1000}, base={**base, "--update-freq": 2}, gpus=2)
    (step, *_) = specs(plan, {})[0].steps
    assert step.words[step.words.index("--max-update") + 1] == "8"  # of 4 x 8 x 2 x 2 tokens
