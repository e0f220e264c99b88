"""Perplexity by context length: a plain float64 loop, windows, plots, and error messages."""

import csv
import math
import re
from argparse import Namespace

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from support.recipes import recipe_module
from support.toy_lm import LENGTH, train_lm

from fairseq_posenc.models.language_model import MODEL

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.formulas
pytest_plugins = ["support.toy", "support.toy_lm"]
extrapolation = recipe_module("language_model", "extrapolation")
ADAPTIVE = [
    *("--adaptive-input", "--adaptive-input-cutoff", "8,16", "--tie-adaptive-weights"),
    *("--adaptive-softmax-cutoff", "8,16", "--criterion", "adaptive_loss"),
    *("--ddp-backend", "legacy_ddp"),
]
YARN = {"rotary_scaling": "yarn", "rotary_scaling_factor": 2}


def how(data, lengths, last, **others):
    usual = {"subset": "valid", "tokens": None, "max_tokens": 64, "cpu": True}
    return Namespace(data=str(data), lengths=lengths, last=last, **{**usual, **others})


def measured(checkpoint, *arguments, overrides=None, **others):
    run = extrapolation.read_run(f"a={checkpoint} {overrides or {}}")
    return extrapolation.measure(run, how(*arguments, **others))


def tokens_of(data):
    """The text for validation, read without fairseq's data sets."""
    words = Dictionary.load(str(data / "dict.txt"))
    lines = (data / "valid").read_text().splitlines()
    return words.eos(), [words.index(w) for line in lines for w in [*line.split(), words.eos_word]]


@pytest.mark.parametrize(
    "encoding, flags, overrides",
    [("learned", [], {}), ("rotary", [], YARN), ("t5", ADAPTIVE, {})],
)
def test_a_plain_loop_in_float64(encoding, flags, overrides, corpus, trained_lm, tmp_path):
    if flags:
        train_lm(corpus, tmp_path, MODEL, "--position-encoding", encoding, *flags)
    checkpoint = tmp_path / "checkpoint_last.pt" if flags else trained_lm(encoding)
    lengths = [6, LENGTH, 40][: 2 if encoding == "learned" else 3]
    found = measured(checkpoint, corpus, lengths, 3, overrides=overrides)
    given = {**overrides, "data": str(corpus)}
    (model,), _, _ = load_model_ensemble_and_task([str(checkpoint)], arg_overrides=given)
    model.double().eval()
    eos, targets = tokens_of(corpus)
    inputs = [eos, *targets[:-1]]
    ends = range(lengths[-1], len(targets) + 1, 3)
    assert found.tokens == 3 * len(ends) > 30
    for length in lengths:
        losses = []
        for end in ends:
            for token in range(end - 3, end):
                seen = torch.tensor([inputs[end - length : token + 1]])
                goal = torch.tensor([targets[end - length : token + 1]])
                with torch.no_grad():
                    scores = model.get_normalized_probs(model(seen), True, {"target": goal})
                losses.append(-float(scores[0, -1, targets[token]]) / math.log(2))
        assert found.bits[length] == pytest.approx(sum(losses) / len(losses), rel=2e-5)


def test_size_of_batches_and_samples_of_windows(corpus, trained_lm):
    arguments = (trained_lm("rotary"), corpus, [8, 32], 4)
    whole = measured(*arguments)
    assert measured(*arguments, max_tokens=1).bits == pytest.approx(whole.bits, abs=1e-5)
    some = measured(*arguments, tokens=18)
    assert some.tokens == 20 and some.bits[8] != whole.bits[8]
    assert measured(*arguments, tokens=10**6).bits == whole.bits
    ends = extrapolation.choose_windows(1000, how("", [50, 100], 10, tokens=45))
    assert ends.tolist() == [100, 320, 550, 770, 1000]


def test_stock_models_end_with_their_table(corpus, tmp_path):
    stock = ["transformer_lm", "--decoder-input-dim", "16", "--decoder-output-dim", "16"]
    train_lm(corpus, tmp_path, *stock, "--decoder-learned-pos")
    reading = measured(tmp_path / "checkpoint_last.pt", corpus, [8, LENGTH, 32], 4)
    assert list(reading.bits) == [8, LENGTH] and reading.run.trained == LENGTH


def test_one_picture_of_several_models_and_settings(corpus, trained_lm, tmp_path, capsys):
    rotary, learned = trained_lm("rotary"), trained_lm("learned")
    runs = [f"learned={learned}", f"rotary={rotary}", f"rotary, yarn={rotary} {YARN}"]
    runs += [f"rotary={trained_lm('rotary').with_name('checkpoint1.pt')}"]  # same name
    output, table = tmp_path / "curves.png", tmp_path / "curves.csv"
    files = ["--output", str(output), "--csv", str(table)]
    extrapolation.main([str(corpus), *files, "--lengths", "16,8,32", "--cpu", *runs])
    assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.csv", "curves.png"]
    with open(str(table), newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["length"] for row in rows] == ["8", "16", *["8", "16", "32"] * 3]
    own = measured(rotary, corpus, [8, 16, 32], 4).bits
    assert [float(row["bits"]) for row in rows[2:5]] == pytest.approx(list(own.values()), abs=1e-5)
    assert {(row["trained"], row["last"]) for row in rows} == {("16", "4")}
    scaled = measured(rotary, corpus, [8, 16, 32], 4, overrides=YARN).bits
    assert float(rows[7]["perplexity"]) == pytest.approx(2 ** scaled[32], rel=1e-4)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[2] == "| name | 8 | 16 | 32 |"
    assert re.fullmatch(r"\| learned \| [\d.]+ \| [\d.]+ \| - \|", lines[4])
    both = [float(row["perplexity"]) for row in rows if row["name"] == "rotary"]
    mean, one, other = map(float, re.findall(r"[\d.]+", lines[5])[-3:])
    assert (one, other) == pytest.approx((both[2], both[5]), abs=6e-3)
    assert mean == pytest.approx((both[2] + both[5]) / 2, abs=6e-3)
    assert "learned: its table ends at 16 positions" in err


def test_a_curve_of_several_runs_ends_with_the_first_of_them():
    """A curve ends with its shortest run, because a mean beyond would be over fewer models."""
    short, long = (
        extrapolation.Measurement(extrapolation.Run("a", "", {}, 8), 4, dict.fromkeys(read, 3))
        for read in ([4, 8], [4, 8, 16])
    )
    assert extrapolation.curves_of([short, long]) == {"a": {4: [8.0, 8.0], 8: [8.0, 8.0]}}


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["rotary"], ["rotary", "NAME=CHECKPOINT"]),
        (["a=missing.pt"], ["missing.pt", "no .pt file"]),
        (["a=FILE {'rotary_scaling': }"], ["rotary_scaling", "overrides"]),
        (["a=FILE {'rotary_scalling': 'yarn'}"], ["'rotary_scalling'", "no such setting"]),
        (["a=FILE {'rotary_scaling': 'yarn'}"], ["--rotary-scaling-factor"]),
        (["a=TRANSLATION"], ["--task translation"]),
        (["a=FILE", "--lengths", "8,x"], ["--lengths 8,x"]),
        (["a=FILE", "--lengths", "0,8"], ["--lengths 0,8"]),
        (["a=FILE", "--lengths", "8,4096"], ["--lengths 4096", "tokens"]),
        (["a=FILE", "--last", "9"], ["--last 9", "--lengths 8"]),
        (["a=FILE", "--last", "0"], ["--last 0"]),
        (["a=FILE", "--max-tokens", "-1"], ["--max-tokens -1"]),
        (["a=FILE", "--subset", "dev"], ["--subset dev"]),
        (["a=FILE", "--csv", "nowhere/x.csv"], ["--csv nowhere/x.csv"]),
        (["a=FILE", "--output", "nowhere/x.png"], ["--output nowhere/x.png"]),
        (["a=LEARNED", "--lengths", "24,32"], ["--lengths 24", "16 positions"]),
        (["a=LEARNED {'max_target_positions': 64}", "--lengths", "32"], ["LEARNED", "do not fit"]),
    ],
)
def test_mistakes_are_one_line(arguments, parts, corpus, trained, trained_lm, tmp_path):
    files = {"FILE": str(trained_lm("rotary")), "LEARNED": str(trained_lm("learned"))}
    files["TRANSLATION"] = str(trained / "checkpoint_last.pt")
    for short, path in files.items():
        arguments = [argument.replace(short, path) for argument in arguments]
    with pytest.raises(SystemExit) as error:
        usual = ["--output", str(tmp_path / "out.png"), "--lengths", "8", "--cpu"]
        extrapolation.main([str(corpus), *usual, *arguments])
    message = str(error.value)
    assert "\n" not in message
    assert all(files.get(part, part) in message for part in parts), message
    assert list(tmp_path.iterdir()) == []


def test_data_without_a_dictionary_are_one_line(tmp_path):
    arguments = [str(tmp_path), "a=a.pt", "--lengths", "8", "--output", "out.png"]
    with pytest.raises(SystemExit, match="no dict.txt"):
        extrapolation.main(arguments)
