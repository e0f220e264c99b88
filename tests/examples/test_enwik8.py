"""Enwik8 recipe: the paper's settings, both models on a made-up text, resuming, mistakes."""

import os
import random
import re

import pytest
from support.commands import shape
from support.recipes import (
    EXAMPLES,
    assert_error,
    bash,
    check_flags,
    commands,
    flags_of,
    recipe_module,
    trainings_in,
)

RECIPE = EXAMPLES / "enwik8"
RUN = RECIPE / "run.sh"
perplexities = recipe_module("language_model", "perplexities")

# --lr so large that two updates show; every update validates, as a hundredth of two is none
TINY = [*shape(1, 16, 16, 2, "decoder"), "--num-workers", "0", "--lr", "0.05", "--min-lr", "0.01"]
OPTIONS = ["--kind", "text8", "--cpu", "--updates", "2", "--length", "16", "--batch", "4"]


def recipe(folder, *more, flags=()):
    return bash(RUN, "text8", "out", *OPTIONS, *more, "--", *TINY, *flags, cwd=folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder with ``out`` of both models, one seed; and what run.sh said."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("enwik8")
    draw = random.Random(3)
    (folder / "text8").write_text("".join(draw.choices("abcde ", k=2000)))
    return folder, recipe(folder, "--seeds", "1")


@pytest.mark.slow
def test_both_models_are_trained_scored_and_drawn(finished):
    folder, result = finished
    out = folder / "out"
    assert (out / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for encoding in ("learned", "rotary"):
        log = (out / f"{encoding}-seed1" / "train.log").read_text()
        settings = [f"'position_encoding': '{encoding}'", "'attention': 'favor'", "num_updates 2"]
        assert all(setting in log for setting in settings)
        losses = re.findall(r"valid on .* \| loss ([\d.]+)", log)
        assert len(losses) == 2 and float(losses[1]) < float(losses[0])
    head, _, *rows = result.stdout.strip().split("\n")  # the table alone
    assert head.startswith("| encoding | ") and len(rows) == 2
    for row in rows:
        encoding, bits_a_character = re.match(
            r"\| `(\w+)` \| 2 \| ([\d.]+) \| \2 \(1\) \|", row
        ).groups()
        score = (out / f"{encoding}-seed1" / "score-valid.log").read_text()
        exact = re.search(r"Loss \(base 2\): ([\d.]+)", score)[1]
        assert float(bits_a_character) == pytest.approx(float(exact), abs=5e-4)


@pytest.mark.slow
def test_started_again_it_repeats_nothing_and_refuses_other_flags(finished):
    folder, first = finished
    again = recipe(folder, "--seeds", "1", "--encodings", "rotary")
    assert again.returncode == 0, again.stderr[-2000:]
    assert again.stderr.count("already done") == 3
    assert again.stdout == first.stdout  # all runs in OUT
    other = recipe(folder, "--seeds", "1", flags=["--clip-norm", "0.5"])
    assert_error(other, "learned-seed1 was begun with --clip-norm", "another --save-dir")


def test_the_settings_are_those_of_the_paper(tmp_path):
    found = commands(bash(RUN, "enwik8", "out", "--gpus", "4", "--dry-run", cwd=tmp_path))
    trained = trainings_in(found)
    for flags in trained:
        check_flags(
            flags,
            "--arch performer_lm_enwik8 --tokens-per-sample 1024 --lr 1e-4 --min-lr 1e-5 "
            "--max-update 100000",
        )
        assert int(flags["--batch-size"]) * int(flags["--update-freq"]) * 4 == 128
    models = [(flags["--position-encoding"], flags["--seed"]) for flags in trained]
    assert models == [("learned", "1"), ("rotary", "1"), ("learned", "2"), ("rotary", "2")]
    plot = next(command for command in found if "--output" in command)
    assert plot[plot.index("--labels") + 1 :] == [
        *("learned", "learned", "rotary", "rotary", "--"),
        *(f"out/{name}-seed{seed}/train.log" for name in ("learned", "rotary") for seed in "12"),
    ]
    assert os.listdir(tmp_path) == []


def test_options_reach_the_training_and_the_scoring(tmp_path):
    options = ["--cpu", "--length", "64", "--batch", "6", "--tokens-per-gpu", "128", "--seeds", "7"]
    models = ["--encodings", "sinusoidal none", "--updates", "50", "--dry-run"]
    result = bash(RUN, "text", "out", *options, *models, "--", "--lr", "1", cwd=tmp_path)
    found = [(command[0], flags_of(command)) for command in commands(result)]
    trained = [flags for name, flags in found if name == "fairseq-train"]
    scored = [flags for name, flags in found if name == "fairseq-eval-lm"]
    assert [flags["--position-encoding"] for flags in trained] == ["sinusoidal", "none"]
    for flags in trained:
        values = [flags[name] for name in ("--batch-size", "--update-freq", "--lr", "--max-update")]
        assert values == ["2", "3", "1", "50"] and "--cpu" in flags
    assert all(f["--tokens-per-sample"] == "64" and f["--max-tokens"] == "128" for f in scored)


def test_the_table_has_the_mean_and_every_seed_the_worst_first():
    scores = {
        "rotary": [perplexities.Score(1, 1500, 2.0, 4.0), perplexities.Score(2, 1500, 2.25, 4.8)]
    }
    scores["learned"] = [perplexities.Score(1, 1500, 3.0, 8.0)]
    assert perplexities.render_characters(scores) == [
        "| encoding | updates | bits per character, mean | of each run (seed) |",
        "| --- | --- | --- | --- |",
        "| `learned` | 1,500 | 3.000 | 3.000 (1) |",
        "| `rotary` | 1,500 | 2.125 | 2.000 (1), 2.250 (2) |",
    ]


def test_a_missing_source_is_one_line(tmp_path):
    assert_error(bash(RUN, "enwik8", "out", "--cpu", cwd=tmp_path), "enwik8: no such file")
    with pytest.raises(SystemExit, match="no runs"):
        perplexities.main(["--characters", str(tmp_path / "out")])
