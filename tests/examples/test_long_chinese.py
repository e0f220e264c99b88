"""Long Chinese text: words with characters for the rest, the stages of Table 4, CAIL2019-SCM."""

import pytest
from support.recipes import EXAMPLES, recipe_module, trainings

RECIPE = EXAMPLES / "long_chinese"
tables = recipe_module("long_chinese", "tables")

PAPER = [
    (512, 256, 200000),
    (1536, 256, 12500),
    (256, 256, 120000),
    (128, 512, 80000),
    (1536, 256, 10000),
    (512, 512, 30000),
]


def stages(cwd, model, *arguments):
    return trainings(RECIPE / "train.sh", model, "data", "--cpu", *arguments, cwd=cwd)


def test_the_stages_are_those_of_table_4(tmp_path):
    found = stages(tmp_path, "wobert")
    run = "runs/long_chinese/wobert/stage"
    for number, (flags, (length, batch, updates)) in enumerate(zip(found, PAPER), 1):
        samples = int(flags["--batch-size"]) * int(flags["--update-freq"])
        assert (int(flags["--tokens-per-sample"]), samples) == (length, batch)
        assert int(flags["--batch-size"]) * length <= 16384
        assert int(flags["--max-update"]) == int(flags["--total-num-update"]) == updates
        assert (flags["--position-encoding"], flags["--max-positions"]) == ("learned", "1536")
        assert flags["--save-dir"] == f"{run}{number}"
        before = f"{run}{number - 1}/checkpoint_last.pt" if number > 1 else None
        assert flags.get("--finetune-from-model") == before
    assert len(found) == len(PAPER)


@pytest.mark.parametrize("model, encoding", [("roformer", "rotary"), ("nezha", "nezha")])
def test_models_without_a_table_take_any_length(model, encoding, tmp_path):
    found = stages(tmp_path, model, "--stages", "64x8x10 128x4x5", "--", "--lr", "1")
    assert [flags["--tokens-per-sample"] for flags in found] == ["64", "128"]
    assert {(flags["--position-encoding"], flags["--lr"]) for flags in found} == {(encoding, "1")}
    assert not any("--max-positions" in flags for flags in found)


def test_the_table_has_the_last_validation_of_each_stage(tmp_path):
    for number, loss in ((1, 2.0), (2, 1.0)):
        (tmp_path / f"stage{number}").mkdir()
        lines = [
            f"epoch 001 | valid on 'valid' subset | loss {value} | ppl 3 | accuracy {50 + value}"
            for value in (7.5, loss)
        ]
        log = "\n".join([*lines, "2026 | done training in 3 seconds"])
        (tmp_path / f"stage{number}" / "train.log").write_text(log + "\n")
    rows = tables.render_stages(tmp_path, "512x256x10 1536x256x5", paper=True)
    assert rows[2:] == [
        "| 1 | 512 | 256 | 10 | 1.39 | 52.0 | 65.0 |",
        "| 2 | 1536 | 256 | 5 | 0.69 | 51.0 | 66.8 |",
    ]
    assert tables.render_stages(tmp_path, "512x256x10")[2].endswith("| 52.0 |  |")


def test_accuracies_are_listed_by_length_of_reading(tmp_path):
    for seed, accuracy in ((1, 60.0), (2, 62.0)):
        run = tmp_path / "roformer-512" / "cail" / f"lr2e-5-batch32-seed{seed}"
        run.mkdir(parents=True)
        for length in (512, 1024):
            lines = [
                f"INFO | valid on '{name}' subset | loss 0.6 | accuracy {accuracy + plus}"
                for name, plus in (("valid", 0), ("valid1", length / 512))
            ]
            (run / f"score-{length}.log").write_text("\n".join(lines) + "\n")
    assert tables.render_lengths(tmp_path)[2:] == [
        "| roformer-512 | 512 | 2 | 61.00 | 62.00 | 64.13, 68.29 |",
        "| roformer-512 | 1024 | 2 | 61.00 | 63.00 |  |",
    ]
