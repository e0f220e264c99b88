"""Long Chinese text: words with characters for the rest, the stages of Table 4, CAIL2019-SCM."""

import json

import pytest
from support.recipes import EXAMPLES, error_of, recipe_module, trainings

RECIPE = EXAMPLES / "long_chinese"
cail = recipe_module("reading", "cail")
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


def triple(number, **changes):
    cases = {"A": f"甲 {number}", "B": f"乙{number}", "C": f"丙{number}"}
    return {**cases, "label": "BC"[number % 2], **changes}


def written(path, entries):
    lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def test_triples_are_split_six_two_two_whatever_their_files(tmp_path):
    entries = [triple(number) for number in range(50)]
    for folder, cut in (("one", 50), ("two", 20)):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "train.json", entries[cut:][::-1])
        written(tmp_path / folder / "valid.json", entries[:cut] + entries[:2])
        cail.extract(str(tmp_path / folder), str(tmp_path / folder / "out"))
    one, two = (
        {
            (column, name): (tmp_path / folder / "out" / column / name).read_text().splitlines()
            for column in ("input0", "input1", "input2", "label")
            for name in ("train", "valid", "valid1")
        }
        for folder in ("one", "two")
    )
    assert one == two
    assert [len(one["label", name]) for name in ("train", "valid", "valid1")] == [30, 10, 10]
    rows = [
        row
        for name in ("train", "valid", "valid1")
        for row in zip(*(one[column, name] for column in ("input0", "input1", "input2", "label")))
    ]
    expected = {(e["A"], e["B"], e["C"], str("BC".index(e["label"]))) for e in entries}
    assert len(rows) == 50 and set(rows) == expected
    assert (tmp_path / "one" / "out" / "choices").read_text() == "2\n"


@pytest.mark.parametrize(
    "entry, message",
    [
        ("{", "is not JSON"),
        ([1], "has no A"),
        (triple(1, label="A"), "label 'A': expected B or C"),
        (triple(1, B=" "), "its B is empty"),
        ({"A": "a", "B": "b", "C": "c"}, "has no label"),
    ],
)
def test_a_wrong_triple_is_one_line_with_its_number(entry, message, tmp_path):
    path = tmp_path / "train.json"
    line = entry if isinstance(entry, str) else json.dumps(entry)
    path.write_text(json.dumps(triple(0)) + "\n" + line + "\n", encoding="utf-8")
    found = error_of(list, cail.triples(str(path)))
    assert "train.json: line 2: " in found and message in found
    few = [cail.Record(str(n), "a", ["b", "c"], 0) for n in range(9)]
    assert "too few to split" in error_of(cail.split, few)


def test_both_lengths_are_fine_tuned_with_half_of_it_for_each_case(tmp_path):
    given = ["cail", "run/model.pt", "out", "--cpu", "--seeds", "1"]
    trained = trainings(RECIPE / "finetune.sh", *given, cwd=tmp_path)
    asked = [(flags["--max-positions"], flags["--max-option-length"]) for flags in trained]
    assert asked == [("512", "256"), ("1024", "512")]
    assert {flags["--num-classes"] for flags in trained} == {"2"}
    assert {flags["--separator-token"] for flags in trained} == {"2"}
    assert [flags["--save-dir"].split("/")[-3] for flags in trained] == ["run-512", "run-1024"]


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
