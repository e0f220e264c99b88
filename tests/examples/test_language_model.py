"""Language-model recipe: the whole chain on a made-up text, what it would run, tables."""

import os
import random
import re

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY
from support.commands import shape
from support.language_models import COMPARE, PREPARE, TRAIN, wikitext
from support.recipes import (
    assert_error,
    bash,
    check_flags,
    commands,
    flags_of,
    recipe_module,
    succeed,
    trainings,
    trainings_in,
)

from fairseq_posenc.models.presets import LANGUAGE_MODEL as PRESETS
from fairseq_posenc.serving.model_folder import read_model_folder

perplexities = recipe_module("language_model", "perplexities")

TINY = [*shape(1, 16, 16, 2, "decoder"), "--num-workers", "0", "--lr", "0.01"]
SMALL_RUNS = ["--cpu", "--updates", "12", "--length", "16", "--batch", "128"]


def made_up_text(size):
    draw = random.Random(3)
    words = ["abc", "bc", "cab", "zz", "the"]
    return " ".join(draw.choice(words) for _ in range(size))[:size]


@pytest.fixture(scope="module")
def text8(tmp_path_factory):
    """Folder with the file ``text8`` of 6,015 characters, and ``out`` of prepare.sh."""
    folder = tmp_path_factory.mktemp("text8")
    (folder / "text8").write_text(made_up_text(6015))
    result = succeed(PREPARE, "text8", "text8", "out", cwd=folder)
    assert "text8: differs from the published text8" in result.stderr
    return folder


@pytest.mark.slow
def test_adaptive_softmax_in_gated_units(tmp_path):
    wikitext(tmp_path / "wikitext")
    succeed(PREPARE, "wikitext", "wikitext", ".", cwd=tmp_path)
    options = [*SMALL_RUNS, "--adaptive", "4,6", "--save-dir", "run"]
    flags = [*TINY, "--decoder-input-dim", "16", "--decoder-output-dim", "16"]
    succeed(TRAIN, "gau", "data-bin", *options, "--", *flags, cwd=tmp_path)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "AdaptiveSoftmax" in log and "num_updates 12" in log
    losses = [float(loss) for loss in re.findall(r"valid on .* \| loss ([\d.]+)", log)]
    assert losses[-1] < losses[0]


def compare(folder, *more, flags=()):
    arguments = ["out/data-bin", "runs", *SMALL_RUNS, "--encodings", "rotary", *more]
    return bash(COMPARE, *arguments, "--", *TINY, *flags, cwd=folder)


@pytest.mark.slow
def test_encodings_and_seeds_to_the_table_interrupted_and_resumed(text8):
    first = compare(text8, "--seeds", "1")
    assert first.returncode == 0, first.stderr[-2000:]
    runs = text8 / "runs"
    written = (runs / "rotary-seed1" / "checkpoint_last.pt").stat().st_mtime_ns
    (runs / "rotary-seed1" / "score-valid.log").unlink()  # as if stopped after the training
    both = compare(text8, "--seeds", "1 2")
    assert both.returncode == 0, both.stderr[-2000:]
    assert (runs / "rotary-seed1" / "checkpoint_last.pt").stat().st_mtime_ns == written
    one, two = [
        float(re.search(r"Perplexity: ([\d.]+)", (runs / name / "score-valid.log").read_text())[1])
        for name in ("rotary-seed1", "rotary-seed2")
    ]
    assert one != two and 1 < one < 27
    *_, row = both.stdout.strip().split("\n")
    assert both.stdout.startswith("| encoding ")  # the table alone
    assert row.startswith(f"| `rotary` | 12 | {(one + two) / 2:.2f} | {one:.2f} | {two:.2f} | ")
    assert row.endswith("| 2.759, 15.78 |")
    assert f"| {one:.2f} | {one:.2f} | " in first.stdout.strip().split("\n")[-1]
    # the mean of the losses in base 2 is bits per character
    bits = float(row.split("|")[6])
    assert 2**bits == pytest.approx((one + two) / 2, rel=0.02)
    # nothing left to do
    again = compare(text8, "--seeds", "1 2")
    assert again.stderr.count("already trained") == again.stderr.count("score-valid: already") == 2
    assert again.stderr.count("\n+ ") <= 1
    assert again.stdout.strip().split("\n")[-1] == row
    # deleted: trained and scored again
    (runs / "rotary-seed1" / "checkpoint_last.pt").unlink()
    anew = compare(text8, "--seeds", "1")
    assert "already" not in anew.stderr
    assert anew.stdout.strip().split("\n")[-1] == row
    assert (runs / "rotary-seed1" / "train.log").read_text().count("done training in") == 1
    folder = read_model_folder(str(runs / "rotary-seed2" / "model"))
    assert (folder.task, folder.text.subwords) == ("language_modeling", "text8")
    # other flags: not the run that was begun
    other = compare(text8, "--seeds", "2", flags=["--dropout", "0.5"])
    assert_error(other, "rotary-seed2 was begun with", "another --save-dir")


def test_a_dry_run_prints_both_steps_of_every_run(tmp_path):
    options = ["--cpu", "--dry-run", "--encodings", "t5 gau", "--seeds", "3 4", "--adaptive", "9"]
    found = commands(bash(COMPARE, "data", "runs", *options, "--", "--lr", "1", cwd=tmp_path))
    trained = trainings_in(found)
    scored = [flags_of(command) for command in found if command[0] == "fairseq-eval-lm"]
    assert [flags["--save-dir"] for flags in trained] == [
        "runs/t5-seed3", "runs/gau-seed3", "runs/t5-seed4", "runs/gau-seed4"
    ]  # fmt: skip
    assert [flags["--path"] for flags in scored] == [
        flags["--save-dir"] + "/checkpoint_last.pt" for flags in trained
    ]
    assert all(flags["--lr"] == "1" and flags["--adaptive-input"] is None for flags in trained)
    lengths = {flags["--tokens-per-sample"] for flags in [*trained, *scored]}
    assert lengths == {"2048"} and "perplexities.py" in found[-1][2]
    assert os.listdir(tmp_path) == []


def training(cwd, *arguments):
    (flags,) = trainings(TRAIN, *arguments, cwd=cwd)
    return flags


def test_training_is_that_of_gpt3(tmp_path):
    flags = training(tmp_path, "rotary", "data", "--gpus", "8")
    check_flags(
        flags,
        "--arch roformer_lm_small --position-encoding rotary --task language_modeling "
        "--tokens-per-sample 2048 --sample-break-mode none --criterion cross_entropy "
        "--max-update 55000 --warmup-updates 550 --lr 6e-4 --min-lr 6e-5 --lr-scheduler cosine "
        "--adam-betas '(0.9, 0.95)' --weight-decay 0.1 --clip-norm 1.0 --dropout 0 "
        "--keep-interval-updates-pattern 5500 --save-dir runs/language_model/rotary-seed1",
    )
    assert os.listdir(tmp_path) == []


def test_the_larger_model_is_gpt3s_with_8k_updates_of_a_million_tokens(tmp_path):
    flags = training(tmp_path, "rotary", "data", "--cpu", "--size", "medium")
    check_flags(
        flags,
        "--arch roformer_lm_medium --max-update 8000 --warmup-updates 80 --lr 2e-4 --min-lr 2e-5 "
        "--save-dir runs/language_model/rotary-medium-seed1",
    )
    assert int(flags["--batch-size"]) * int(flags["--update-freq"]) * 2048 == 1 << 20


def test_every_encoding_is_the_preset_of_its_name(tmp_path):
    small = PRESETS["roformer_lm_small"]
    named = {"learned": "learned", "t5": "t5bias", "alibi": "alibi", "shaw": "shaw"}
    for encoding, name in {**named, "transformer_xl": "transformer_xl"}.items():
        assert PRESETS[f"{name}_lm_small"] == {**small, "position_encoding": encoding}
    assert "roformer_lm_small" in ARCH_CONFIG_REGISTRY
    assert training(tmp_path, "gau", "data", "--cpu")["--arch"] == "gau_lm_small"
    assert training(tmp_path, "learned+t5", "data", "--cpu")["--position-encoding"] == "learned+t5"


@pytest.mark.parametrize("nodes, gpus, limit", [(1, 1, 16384), (1, 8, 4095), (4, 8, 524288)])
def test_an_update_has_so_many_tokens_whatever_the_machine(tmp_path, nodes, gpus, limit):
    several = ["--nodes", str(nodes), "--node-rank", "0", "--init-method", "tcp://first:1"]
    machine = ["--gpus", str(gpus), *several, "--tokens-per-gpu", str(limit)]
    flags = training(tmp_path, "t5", "data", *machine)
    share, passes = int(flags["--batch-size"]), int(flags["--update-freq"])
    assert share * 2048 <= limit and nodes * gpus * share * passes * 2048 == 524288


def made_up_run(out, name, bits, perplexity, updates=100):
    (out / name).mkdir(parents=True)
    found = f"INFO | Loss (base 2): {bits}, Perplexity: {perplexity}\n"
    (out / name / "score-valid.log").write_text("INFO | something\n" + found)
    log = f"epoch 1 | loss 9 | num_updates 50\nnum_updates={updates}, lr=1\n"
    (out / name / "train.log").write_text(log)


def test_the_table_has_means_and_each_seed_worst_first(tmp_path, capsys):
    made_up_run(tmp_path, "rotary-seed1", 6.0, 64.0)
    made_up_run(tmp_path, "learned+t5-seed10", 7.0, 128.0)
    made_up_run(tmp_path, "learned+t5-seed2", 6.5, 90.5)
    perplexities.main([str(tmp_path)])
    assert capsys.readouterr().out.split("\n")[:-1] == [
        "| encoding | updates | perplexity, mean | seed 1 | seed 2 | seed 10 | bits per token | "
        "RoFormer Table 6, OpenWebText2: loss, perplexity |",
        "|" + " --- |" * 8,
        "| `learned+t5` | 100 | 109.25 |  | 90.50 | 128.00 | 6.7500 |  |",
        "| `rotary` | 100 | 64.00 | 64.00 |  |  | 6.0000 | 2.759, 15.78 |",
    ]
    made_up_run(tmp_path, "t5-seed1", 6.0, 64.0, updates=90)
    perplexities.main([str(tmp_path)])
    assert "differ in their number of updates" in capsys.readouterr().out


def test_nothing_to_tabulate_is_one_line(tmp_path):
    with pytest.raises(SystemExit, match="no runs of compare.sh"):
        perplexities.main([str(tmp_path)])
    made_up_run(tmp_path, "t5-seed1", 6.0, 64.0)
    with pytest.raises(SystemExit, match=r"score-test\.log"):
        perplexities.main(["--subset", "test", str(tmp_path)])
    (tmp_path / "t5-seed1" / "score-valid.log").write_text("stopped\n")
    with pytest.raises(SystemExit, match="is incomplete"):
        perplexities.main([str(tmp_path)])
