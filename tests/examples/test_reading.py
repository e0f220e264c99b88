"""Reading comprehension and sentence tasks: from published files to data and scores."""

import json

import pytest
from support.commands import posenc
from support.recipes import EXAMPLES, bash, made_up_run, recipe_module, succeed, write

pytest_plugins = ["support.packed_models"]
RECIPE = EXAMPLES / "reading"
choices, made_up = (recipe_module("reading", name) for name in ("choices", "made_up"))
table = recipe_module("common", "table")
TINY = ["--cpu", "--max-positions", "16", "--log-interval", "1"]
FAST = {"PRECISION": "", "WORKERS": "1", "EPOCHS": "2", "BATCH": "4"}


def put(folder, files):
    """Write *files* (name: content); a name with ``{}`` is written for each split."""
    for name, content in files.items():
        for split in ("train", "dev", "val", "test") if "{}" in name else ("",):
            path = folder / name.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
    return folder


def extracted(task, folder):
    out = folder / "out"
    choices.main(task, str(folder), str(out))
    return {f"{p.parent.name}/{p.name}": p.read_text().splitlines() for p in out.glob("*/*")}


def test_cail_is_split_by_its_text_and_each_triple_is_taken_once(tmp_path):
    lines = [json.dumps({"A": f"a{n}", "B": "b", "C": "c", "label": "C"}) for n in range(20)]
    (tmp_path / "one.json").write_text("\n".join(lines))
    found = extracted("cail", tmp_path)
    sizes = [len(found[f"label/{split}"]) for split in ("train", "valid", "valid1")]
    assert sizes == [12, 4, 4] and found["label/train"] == ["1"] * 12
    assert found["input1/train"] == ["b"] * 12 and found["input2/valid"] == ["c"] * 4
    (tmp_path / "one.json").rename(tmp_path / "two.json")
    (tmp_path / "three.json").write_text("\n".join(lines[::-1]))
    assert extracted("cail", tmp_path) == found


# --- from files to scores


ASKED = {"question": "the _ sleeps .", "choice": ["cat", "g"], "answer": "g"}
SPAN = {"id": "1", "question": "the g", "answers": [{"text": "cat", "answer_start": 4}]}
TEXTS = {"paragraphs": [{"context": "the cat sleeps .", "qas": [SPAN]}]}
FILES = {
    "c3": {"c3-m-{}.json": [[["the cat barks"], [ASKED, {**ASKED, "answer": "cat"}], "1"]] * 4},
    "squad": {"{}-v2.0.json": {"data": [TEXTS]}},
}


@pytest.mark.journeys
@pytest.mark.parametrize("task", FILES)
def test_from_published_files_to_scores(folder_of, tmp_path, task, capsys):
    put(tmp_path, FILES[task])
    model = folder_of("masked_lm")
    given = [task, ".", model, "data"]
    succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path, **FAST)
    run = [task, "data/data-bin", model, "runs/seed1", *TINY]
    for epochs in ("1", "2") if task == "squad" else "2":  # the second call resumes
        trained = succeed(RECIPE / "train.sh", *run, cwd=tmp_path, **{**FAST, "EPOCHS": epochs})
    assert "position encoding rotary" in trained.stdout + trained.stderr
    table.main([str(tmp_path / "runs" / "seed1")])
    row = capsys.readouterr().out.splitlines()[-1]
    assert len(table.epochs(tmp_path / "runs" / "seed1")) == 2
    if task == "c3":
        assert row.startswith(f"| {tmp_path}/runs/ | 1 | valid_accuracy ")
        return
    again = succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path, PATH="/usr/bin:/bin", WORKERS="1")
    assert again.stdout == "data/data-bin exists already\n"
    checkpoint = tmp_path / "runs" / "seed1" / "checkpoint_best.pt"
    answered = posenc("reading", "answer", checkpoint, tmp_path / "data" / "data-bin",
                      "--output", tmp_path / "answers")  # fmt: skip
    assert answered.status == 0 and (tmp_path / "answers" / "predictions.json").exists()
    assert "valid_exact" in row and "valid_f1" in row


def test_the_table_has_means_or_medians_over_seeds(tmp_path, capsys):
    for seed, value in enumerate((70, 80, 95)):
        scores = {"valid_exact": [1.0, 3.0], "valid_f1": [value, 2.0]}
        made_up_run(tmp_path, f"squad-seed{seed}", scores)
    folders = [str(tmp_path / f"squad-seed{seed}") for seed in range(3)]
    for flags, scores in (
        ([], "valid_exact 1.00 ± 0.00, valid_f1 81.67 ± 12.58"),
        (["--median"], "valid_exact 1.00 ± 0.00, valid_f1 80.00 ± 12.58"),
        (["--last"], "valid_exact 3.00 ± 0.00, valid_f1 2.00 ± 0.00"),
    ):
        table.main([*flags, *folders])
        assert capsys.readouterr().out.splitlines()[-1] == f"| {tmp_path}/squad | 3 | {scores} |"
    with pytest.raises(SystemExit, match="none: has no complete train.log"):
        table.main(["none"])


@pytest.mark.parametrize("form", ["spans", "choices"])
def test_made_up_questions_follow_their_rule(tmp_path, form):
    line = "in {} , {} men went north and so on to a place"
    (tmp_path / "text").write_text("\n".join(line.format(1900 + n, n) for n in range(1, 60)))
    made_up.main(form, str(tmp_path / "text"), str(tmp_path / "out"), "50")
    made = json.loads((tmp_path / "out").read_text())
    if form == "spans":
        made = made["data"][0]["paragraphs"]
        for paragraph in made:
            (asked,), context = paragraph["qas"], paragraph["context"]
            (answer,) = asked["answers"]
            assert context[answer["answer_start"] :].split()[0] == answer["text"]
            assert made_up.KINDS[asked["question"].split()[0]].fullmatch(answer["text"])
    else:
        assert all(asked["answer"] in asked["choice"] for _, (asked,), _ in made)
    assert len(made) == 50


# --- sentence tasks


GLUE = EXAMPLES / "glue"
tasks = recipe_module("glue", "tasks")


@pytest.mark.journeys
def test_from_files_to_scores(folder_of, tmp_path):
    model = folder_of("masked_lm")
    (tmp_path / "CoLA").mkdir()
    rows = ["x\t1\t\tthe cat sleeps .", "x\t0\t*\tcat the barks ."] * 4
    for split in ("train", "dev"):
        write(tmp_path / "CoLA" / f"{split}.tsv", rows)
    given = ("CoLA", "CoLA", model, "data")
    succeed(GLUE / "prepare.sh", *given, cwd=tmp_path, WORKERS="1")
    again = succeed(GLUE / "prepare.sh", *given, cwd=tmp_path, PATH="/usr/bin:/bin")
    assert again.stdout == "data/data-bin exists already\n"
    write(tmp_path / "CoLA" / "dev.tsv", rows[1:])
    changed = bash(GLUE / "prepare.sh", *given, cwd=tmp_path)
    assert changed.returncode == 1 and "choose another folder" in changed.stderr
    run = ("data/data-bin", model, "run", "--cpu", "--log-interval", "1", "--num-workers", "0")
    fast = {"PRECISION": "", "BATCH": "4", "LR": "1e-2"}
    for epochs in ("1", "2"):  # the second run resumes
        result = succeed(GLUE / "train.sh", *run, cwd=tmp_path, EPOCHS=epochs, **fast)
    assert "position encoding rotary" in result.stdout + result.stderr
    found = recipe_module("common", "table").epochs(tmp_path / "run")
    assert [set(epoch) for epoch in found] == [{"valid_mcc", "valid_accuracy"}] * 2
