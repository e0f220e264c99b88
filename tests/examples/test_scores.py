"""Tables of fine-tuning scores."""

import os
import random
import statistics

import pytest
from support.glue_files import runs_of
from support.recipes import made_up_run, recipe_module

scores = recipe_module("common", "scores")


def test_median_of_seeds_then_best_learning_rate(tmp_path):
    draw = random.Random(2)
    wanted = {}
    for rate in ("1e-5", "2e-5"):
        best = []
        for seed in range(1, 6):
            after = [round(draw.uniform(20, 60), 2) for _ in range(3)]
            made_up_run(tmp_path / "a" / "CoLA", f"lr{rate}-seed{seed}", {"valid_mcc": after})
            best.append(max(after))
        wanted[rate] = statistics.median(best)
    made_up_run(
        tmp_path / "a" / "MNLI",
        "lr1e-5-seed1",
        {"valid_accuracy": [80, 81], "valid1_accuracy": [79, 77]},
    )
    made_up_run(tmp_path / "b" / "CoLA", "lr1e-5-seed1", {"valid_mcc": [5, 4]})
    lines = scores.render(scores.collect(tmp_path, "tupe", "best"), "tupe")
    top = max(wanted.values())
    assert lines[0] == "| model | CoLA (mcc) | MNLI-m (accuracy) | MNLI-mm (accuracy) | average |"
    assert lines[2] == f"| a | {top:.2f} | 81.00 | 79.00 | {(top + 81 + 79) / 3:.2f} |"
    assert lines[3] == "| b | 5.00 |  |  |  |"
    row = f"| a | CoLA (mcc) | 5 | {wanted['1e-5']:.2f} | {wanted['2e-5']:.2f} |"
    assert row in lines
    last = scores.render(scores.collect(tmp_path, "tupe", "last"), "tupe")
    assert last[3] == "| b | 4.00 |  |  |  |"


def test_batches_have_folders_and_columns_of_their_own(tmp_path):
    folders = {run["--save-dir"] for run in runs_of(tmp_path, "CoLA", "--seeds", "1")}
    folders |= {
        run["--save-dir"] for run in runs_of(tmp_path, "CoLA", "--seeds", "1", "--batch", "16")
    }
    assert len(folders) == 8
    for value, folder in enumerate(sorted(folders)):
        name = os.path.basename(folder)
        made_up_run(tmp_path / "mine" / "CoLA", name, {"valid_mcc": [10.0 + value]})
    lines = scores.render(scores.collect(tmp_path, "tupe", "best"), "tupe")
    rates = [f"{rate}e-5{batch}" for rate in (2, 3, 4, 5) for batch in ("", " x 16")]
    assert f"| model | set (score) | seeds | {' | '.join(rates)} |" in lines
    assert lines[-1].startswith("| mine | CoLA (mcc) | 1 | 11.00 | 10.00 | 13.00 | 12.00 ")


def test_the_roformer_table_has_means_and_deviations(tmp_path):
    for seed, value in enumerate([80, 82, 87], 1):
        made_up_run(tmp_path / "m" / "MRPC", f"lr2e-5-seed{seed}", {"valid_f1": [value]})
    lines = scores.render(scores.collect(tmp_path, "roformer", "best"), "roformer")
    assert lines[2] == "| m | 83.00 | 83.00 |"
    assert lines[-1] == "| m | MRPC (f1) | 3 | 83.00 ± 3.61 |"


def test_the_best_run_is_one_with_a_checkpoint(tmp_path):
    folder = tmp_path / "m" / "RTE"
    for seed, after in enumerate(([50, 61], [60], [99]), 1):
        made_up_run(folder, f"lr2e-5-seed{seed}", {"valid_accuracy": after})
    with pytest.raises(SystemExit, match="has no complete run with a checkpoint_best.pt"):
        scores.main(["--best-runs", "1", str(folder)])
    for seed in (1, 2):
        (folder / f"lr2e-5-seed{seed}" / "checkpoint_best.pt").touch()
    expected = [
        f"{folder}/lr2e-5-seed{seed}\taccuracy {score}.00 on the validation set"
        for seed, score in ((1, 61), (2, 60))
    ]
    for count in (1, 2, 3):
        assert scores.best_runs(folder, "tupe", count) == expected[:count]


def test_roberta_has_the_median_of_the_best_rate_and_batch(tmp_path):
    for rate in ("1e-5", "3e-5"):
        for batch in (16, 32):
            for seed, value in enumerate((10, 20 + batch, 90), 1):
                name = f"lr{rate}-batch{batch}-seed{seed}"
                made_up_run(tmp_path / "m" / "RTE", name, {"valid_accuracy": [value, 0]})
    lines = scores.render(scores.collect(tmp_path, "roberta", "best"), "roberta")
    assert lines[2] == "| m | 52.00 | 52.00 |"
    assert lines[-3].endswith("| seeds | 1e-5 x 16 | 1e-5 x 32 | 3e-5 x 16 | 3e-5 x 32 |")
    assert lines[-1] == "| m | RTE (accuracy) | 3 | 36.00 | 52.00 | 36.00 | 52.00 |"


def test_older_folders_have_the_batch_of_the_paper(tmp_path):
    for seed, name in enumerate(("lr2e-5-seed1", "lr2e-5-batch32-seed2", "lr2e-5-batch16-seed3")):
        made_up_run(tmp_path / "m" / "RTE", name, {"valid_accuracy": [seed]})
    lines = scores.render(scores.collect(tmp_path, "tupe", "best"), "tupe")
    assert lines[-1] == "| m | RTE (accuracy) | 1/2 | 0.50 | 2.00 |"


def test_own_tasks_stand_last_with_their_score(tmp_path):
    for task in ("a-mm", "WSC", "RTE"):
        made_up_run(tmp_path / "m" / task, "lr2e-5-seed1", {"valid_accuracy": [1], "valid_f1": [2]})
    described = "a-mm: {train: x, valid: x, text: 1, label: 2, scores: [f1, accuracy]}\n"
    (tmp_path / "m" / "a-mm" / "task.yaml").write_text(described)
    lines = scores.render(scores.collect(tmp_path, "tupe", "best"), "tupe")
    assert lines[0] == "| model | RTE (accuracy) | WSC (accuracy) | a-mm (f1) | average |"


def test_nothing_to_tabulate_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match="no runs of finetune.sh"):
        scores.main([str(tmp_path)])
    made_up_run(tmp_path / "m" / "MRPC", "lr2e-5-seed1", {"valid_f1": [1]})
    with pytest.raises(SystemExit, match="train.log: contains no valid_accuracy"):
        scores.main([str(tmp_path)])
