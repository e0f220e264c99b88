"""Figures: their style and formats, and loss curves from each kind of log."""

import struct

import pytest

from fairseq_posenc.analysis import figures, training
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import main

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.journeys

JSON_LOG = """\
2026-01-01 10:00:00 | INFO | fairseq_cli.train | task: TranslationTask
2026-01-01 10:00:01 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "9.5", \
"nll_loss": "9.1", "ppl": "548", "num_updates": "10", "lr": "0.1"}
{"epoch": 1, "update": 1.0, "loss": "8.25", "nll_loss": "8.0", "num_updates": "20"}
2026-01-01 10:00:02 | INFO | valid | {"epoch": 1, "valid_loss": "7.5", "valid_nll_loss": "7.0", \
"valid_num_updates": "20"}
2026-01-01 10:00:02 | INFO | train | {"epoch": 1, "train_loss": "8.9", "train_num_updates": "20"}
{"epoch": 1, "update": 1.0, "loss": "8.25", "nll_loss": "8.0", "num_updates": "20"}
2026-01-01 10:00:03 | INFO | valid | {"epoch": 2, "valid_loss": "6.5", "valid_num_updates": "40"}
2026-01-01 10:00:03 | INFO | train_inner | {"epoch": 3, "loss": "6
"""
SIMPLE_LOG = """\
x | INFO | train_inner | epoch 001:     10 / 20 loss=9.5, nll_loss=9.1, ppl=548, num_updates=10
epoch 001:     20 / 20 loss=8.25, nll_loss=8.0, ppl=256, num_updates=20, lr=0.1
x | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.5 | nll_loss 7 | num_updates 20
x | INFO | valid1 | epoch 001 | valid on 'valid1' subset | loss 5 | nll_loss 5 | num_updates 20
x | INFO | train | epoch 001 | loss 8.9 | nll_loss 8.5 | num_updates 20
x | INFO | valid | epoch 002 | valid on 'valid' subset | loss 6.5 | bleu 3.5 | num_updates 40
"""


@pytest.mark.parametrize("log", [JSON_LOG, SIMPLE_LOG], ids=["json", "simple"])
def test_both_log_formats_give_the_same_curves(log):
    curves = training.read_curves(log.splitlines(), "loss")
    assert curves.train == {10: 9.5, 20: 8.25}
    assert curves.valid == {20: 7.5, 40: 6.5}
    assert training.read_curves(log.splitlines(), "loss", first=20).train == {20: 8.25}
    assert training.read_curves(log.splitlines(), "nll_loss").valid[20] == 7.0


def test_runs_of_one_name_are_averaged_where_all_have_a_value(tmp_path, monkeypatch):
    runs = [training.read_curves(log.splitlines(), "loss") for log in (SIMPLE_LOG, JSON_LOG)]
    later = {20: 8.0, 10: 9.0, 30: 7.0}
    assert list(training.together([runs[0].train, later]).items()) == [
        (10, [9.5, 9.0]), (20, [8.25, 8.0])
    ]  # fmt: skip
    assert training.together([runs[0].train, {}]) == {}
    drawn, draw = [], training.draw
    monkeypatch.setattr(training, "draw", lambda *given: drawn.append(given[0]) or draw(*given))
    paths = [tmp_path / f"{number}.log" for number in range(3)]
    for path, log in zip(paths, (SIMPLE_LOG, JSON_LOG, JSON_LOG)):
        path.write_text(log)
    output = tmp_path / "curves.png"
    labels = ["--labels", "a", "b", "a", "--"]
    main(["plot", "training", "--output", str(output), *labels, *map(str, paths)])
    assert drawn == [{"a": runs, "b": [runs[1]]}]
    assert output.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.log"], ["missing.log", "No such file"]),
        (["empty.log"], ["empty.log", "--log-format json"]),
        (["run.log", "--from", "30"], ["run.log", "from update 30 on"]),
        (["run.log", "--labels", "one", "two"], ["--labels one two", "expected 1"]),
        (["run.log", "--output", "a.jpg"], ["--output a.jpg: unknown format", ".svg"]),
        (["run.log", "run.log"], ["several logs are in folders of the same name", "--labels"]),
        (["run.log", "late.log", "--labels", "a", "a"], ["--labels a", "share too few updates"]),
    ],
)
def test_errors_are_one_line(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.log").write_text("nothing here\n")
    (tmp_path / "run.log").write_text(JSON_LOG)
    late = JSON_LOG.replace('num_updates": "', 'num_updates": "1')
    (tmp_path / "late.log").write_text(late)
    with pytest.raises(UsageError) as error:
        main(["plot", "training", "--output", "out.png", *arguments])
    message = str(error.value.code)
    assert "\n" not in message and all(word in message for word in words)
    assert not list(tmp_path.glob("*.png"))


# --- the style of all plots


def test_curves_are_told_apart_without_colour_and_heat_maps_are_centred_on_zero():
    looks = [(s["linestyle"], s["marker"]) for s in map(figures.curve_style, range(20))]
    assert len(set(looks)) == 20
    for one, other in zip(looks, looks[1:]):
        assert one[0] != other[0] and one[1] != other[1]
    assert figures.heat_limits(-1.0, 3.0) == {"vmin": -3.0, "vmax": 3.0}
    assert figures.heat_limits(-8.0, -1.0) == {"vmin": -8.0, "vmax": -1.0}


@pytest.mark.parametrize("name", ["a", "a.png", "a.svg", "a.pdf"])
def test_a_figure_is_the_same_file_again_and_of_the_format_of_its_name(tmp_path, name):
    contents = []
    for _ in range(2):
        figure, axes = figures.import_pyplot("--output").subplots(figsize=(2, 1))
        axes.plot([1, 2], [3, 4], **figures.curve_style(0))
        axes.set_xlabel("length (tokens)")
        figures.save_figure(figure, tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    if name in ("a", "a.png"):
        assert struct.unpack(">II", contents[0][16:24]) == (600, 300)  # at 300 dpi
    else:
        start = {"a.svg": b"<?xml", "a.pdf": b"%PDF"}[name]
        assert contents[0].startswith(start) and b"PNG" not in contents[0][:8]
    if name == "a.svg":
        assert b"length (tokens)" in contents[0]  # text that can be searched and edited
