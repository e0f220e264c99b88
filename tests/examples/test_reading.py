"""Reading recipe: both kinds of tasks from published files to scores, settings, the table."""

import json

import pytest
from fairseq import options
from support.commands import posenc
from support.model_folders import packed_masked_lm
from support.recipes import EXAMPLES, bash, made_up_run, recipe_module, stub_arguments, succeed

RECIPE = EXAMPLES / "reading"
made_up = recipe_module("reading", "made_up")
table = recipe_module("common", "table")
TINY = ["--cpu", "--max-positions", "16", "--log-interval", "1"]
FAST = {"PRECISION": "", "WORKERS": "1", "EPOCHS": "2", "BATCH": "4"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a small masked language model, whose words are those of WORDS."""
    return packed_masked_lm(tmp_path_factory.mktemp("model"))


def choice_files(folder):
    asked = {"question": "the _ sleeps .", "choice": ["cat", "g"], "answer": "g"}
    records = [[["the cat barks"], [asked, {**asked, "answer": "cat"}], "1"]] * 4
    for split in ("train", "dev"):
        (folder / f"c3-m-{split}.json").write_text(json.dumps(records))


def span_files(folder):
    answers = [{"text": "cat", "answer_start": 4}]
    asked = [{"id": "1", "question": "the g", "answers": answers}]
    content = {"data": [{"paragraphs": [{"context": "the cat sleeps .", "qas": asked}]}]}
    for split in ("train", "dev"):
        (folder / f"{split}-v2.0.json").write_text(json.dumps(content))


@pytest.mark.parametrize("task, write", [("c3", choice_files), ("squad", span_files)])
def test_from_published_files_to_scores(model, tmp_path, task, write, capsys):
    write(tmp_path)
    given = [task, ".", model, "data"]
    succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path, **FAST)
    again = succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path, PATH="/usr/bin:/bin", WORKERS="1")
    assert again.stdout == "data/data-bin is there\n"
    other = bash(RECIPE / "prepare.sh", *given, cwd=tmp_path, LONGEST="9", TRAIN="x")
    assert other.returncode == 1 and "choose another folder" in other.stderr
    run = [task, "data/data-bin", model, "runs/seed1", *TINY]
    trained = succeed(RECIPE / "train.sh", *run, cwd=tmp_path, **FAST)
    assert "position encoding rotary" in trained.stdout + trained.stderr
    succeed(RECIPE / "train.sh", *run, cwd=tmp_path, **{**FAST, "EPOCHS": "3"})
    table.main([str(tmp_path / "runs" / "seed1")])
    row = capsys.readouterr().out.splitlines()[-1]
    assert len(table.epochs(tmp_path / "runs" / "seed1")) == 3  # it went on
    if task == "c3":
        assert row.startswith(f"| {tmp_path}/runs/ | 1 | valid_accuracy ")
        return
    checkpoint = tmp_path / "runs" / "seed1" / "checkpoint_best.pt"
    answered = posenc("reading", "answer", checkpoint, tmp_path / "data" / "data-bin",
                      "--output", tmp_path / "answers")  # fmt: skip
    assert answered.status == 0 and (tmp_path / "answers" / "predictions.json").exists()
    assert "valid_exact" in row and "valid_f1" in row


def test_text_of_other_words_is_refused(model, tmp_path):
    asked = {"question": "who ?", "choice": ["he", "she"], "answer": "he"}
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text(json.dumps([[["they left"], [asked], "1"]]))
    refused = bash(RECIPE / "prepare.sh", "c3", ".", model, "data", cwd=tmp_path, WORKERS="1")
    assert refused.returncode == 1 and not (tmp_path / "data" / "data-bin").exists()
    assert refused.stderr.splitlines()[-1].startswith("data/symbols/input0/train: 100% is not in")


PAPERS = {
    "squad": "--lr 1.5e-5 --batch-size 48 --max-epoch 2 --weight-decay 0.01 --adam-eps 1e-6",
    "race": "--lr 1e-5 --batch-size 16 --max-epoch 4 --weight-decay 0.1 --adam-eps 1e-6",
    "copa": "--lr 1e-5 --batch-size 16 --max-epoch 10 --weight-decay 0.1 --adam-eps 1e-6",
    "cmrc": "--lr 3e-5 --batch-size 32 --max-epoch 3 --weight-decay 0.01 --adam-eps 1e-8",
    "chid": "--lr 3e-5 --batch-size 32 --max-epoch 3 --weight-decay 0.01 --adam-eps 1e-8",
    "c3": "--lr 2e-5 --batch-size 24 --max-epoch 8 --weight-decay 0.01 --adam-eps 1e-8",
    "cail": "--lr 2e-5 --batch-size 32 --max-epoch 3 --weight-decay 0.01 --separator-token 2",
}


@pytest.mark.parametrize("task", PAPERS)
def test_hyper_parameters_are_the_papers(tmp_path, task):
    label = tmp_path / "data" / "label"
    label.mkdir(parents=True)
    for split in ("train", "valid", "valid1"):
        (label / f"{split}.label").write_text("0\n" * 101)
    for number in range(5):
        (tmp_path / "data" / f"input{number}").mkdir()
    given = (task, "data", "model", "run", "--seed", 7)
    (words,) = stub_arguments(RECIPE / "train.sh", *given, cwd=tmp_path, posenc="echo 101")
    parsed, _ = options.get_training_parser().parse_known_args(words)
    flags = dict(zip(words, words[1:]))
    expected = PAPERS[task].split()
    assert {name: flags[name] for name in expected[::2]} == dict(zip(expected[::2], expected[1::2]))
    assert parsed.seed == 7 and parsed.fp16 and parsed.update_epoch_batch_itr
    steps = -(-101 // int(flags["--batch-size"])) * int(flags["--max-epoch"])
    assert flags["--total-num-update"] == str(steps)
    if task not in ("squad", "cmrc"):
        assert flags["--valid-subset"] == "valid,valid1" and flags["--num-classes"] == "4"


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
    with pytest.raises(SystemExit, match="none: has no whole train.log"):
        table.main(["none"])


@pytest.mark.parametrize("form", ["spans", "choices"])
def test_made_up_questions_follow_their_rule(tmp_path, form):
    line = "in {} , {} men went north and so on to a place"
    (tmp_path / "text").write_text("\n".join(line.format(1900 + n, n) for n in range(1, 60)))
    made_up.main(form, str(tmp_path / "text"), str(tmp_path / "out"), "50")
    made = json.loads((tmp_path / "out").read_text())
    if form == "spans":
        for paragraph in made["data"][0]["paragraphs"]:
            (asked,), context = paragraph["qas"], paragraph["context"]
            (answer,) = asked["answers"]
            assert context[answer["answer_start"] :].split()[0] == answer["text"]
            assert made_up.KINDS[asked["question"].split()[0]].fullmatch(answer["text"])
        made = made["data"][0]["paragraphs"]
    else:
        assert all(asked["answer"] in asked["choice"] for _, (asked,), _ in made)
    assert len(made) == 50
