"""GLUE recipe: sweeps, warm-up, epochs and scores as in the papers."""

import os

import pytest
from support.glue_files import runs_of
from support.recipes import check_flags


def test_the_sweep_is_the_papers(tmp_path):
    runs = runs_of(tmp_path, "CoLA")
    assert len(runs) == 20
    assert {(run["--lr"], run["--seed"]) for run in runs} == {
        (f"{rate}e-5", str(seed)) for rate in (2, 3, 4, 5) for seed in (1, 2, 3, 4, 5)
    }
    assert len({run["--save-dir"] for run in runs}) == 20
    check_flags(
        runs[0],
        "--arch posenc_masked_lm --init-token 0 --separator-token 2 --batch-size 32 --max-epoch 10 "
        "--best-checkpoint-metric mcc --num-classes 2 --required-batch-size-multiple 1 "
        "--distributed-world-size 1 --weight-decay 0.01",
    )
    assert os.listdir(tmp_path) == []


def test_the_sweep_of_roberta_is_that_of_table_10(tmp_path):
    runs = runs_of(tmp_path, "RTE", "--paper", "roberta", "--patience", "2")
    settings = {(run["--lr"], run["--batch-size"], run["--seed"]) for run in runs}
    assert settings == {
        (f"{rate}e-5", batch, str(seed))
        for rate in (1, 2, 3)
        for batch in ("16", "32")
        for seed in (1, 2, 3, 4, 5)
    }
    assert len({run["--save-dir"] for run in runs}) == len(runs) == 30
    check_flags(
        runs[0],
        "--max-epoch 10 --weight-decay 0.1 --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 "
        "--clip-norm 0.0 --lr-scheduler polynomial_decay --patience 2 "
        "--best-checkpoint-metric accuracy",
    )


def test_the_warm_up_is_6_percent_of_the_batches_own_updates(tmp_path):
    data = tmp_path / "glue" / "RTE"
    data.mkdir(parents=True)
    (data / "examples").write_text("2490\n")
    for run in runs_of(tmp_path, "RTE", "--paper", "roberta", "--seeds", "1", "--lr", "1e-5"):
        updates = {"16": 1560, "32": 780}[run["--batch-size"]]
        assert run["--total-num-update"] == str(updates)
        assert run["--warmup-updates"] == str(updates * 6 // 100)


def test_a_task_may_start_from_the_model_of_another(tmp_path):
    few = ("--seeds", "1", "--lr", "1e-5", "--batch", "16")
    (plain,) = runs_of(tmp_path, "RTE", *few)
    (run,) = runs_of(tmp_path, "RTE", "--from", "MNLI", *few)
    assert run["--restore-file"] == f"{tmp_path}/out/mine/MNLI/model/checkpoint.pt"
    assert run["--classification-head-name"] == "head_of_RTE"
    assert run["--save-dir"] == f"{tmp_path}/out/mine-from-MNLI/RTE/lr1e-5-batch16-seed1"
    assert run["--save-dir"] != plain["--save-dir"]


def test_folders_of_earlier_versions_are_continued(tmp_path):
    (tmp_path / "out" / "mine" / "RTE" / "lr1e-5-seed1").mkdir(parents=True)
    found = runs_of(tmp_path, "RTE", "--seeds", "1", "--lr", "1e-5", "--batch", "16 32")
    names = [os.path.basename(run["--save-dir"]) for run in found]
    assert names == ["lr1e-5-batch16-seed1", "lr1e-5-seed1"]


@pytest.mark.parametrize(
    "paper, task, epochs, score",
    [("tupe", "MRPC", "10", "accuracy"), ("tupe", "STS-B", "10", "pearson")]
    + [("tupe", name, "5", "accuracy") for name in ("MNLI", "QNLI", "QQP")]
    + [("roformer", name, "3", "f1") for name in ("MRPC", "QQP")]
    + [("roformer", "STS-B", "3", "spearman"), ("roformer", "MNLI", "3", "accuracy")]
    + [("roberta", "STS-B", "10", "pearson"), ("roberta", "MRPC", "10", "accuracy")],
)
def test_epochs_and_scores_of_the_papers(tmp_path, paper, task, epochs, score):
    runs = runs_of(tmp_path, task, "--paper", paper)
    assert len(runs) == {"tupe": 20, "roformer": 12, "roberta": 30}[paper]
    assert runs[0]["--max-epoch"] == epochs and runs[0]["--best-checkpoint-metric"] == score
    assert ("--regression-target" in runs[0]) == (task == "STS-B")
    assert runs[0].get("--valid-subset") == ("valid,valid1" if task == "MNLI" else None)
