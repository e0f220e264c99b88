"""The style of all figures: told apart in grey and by colour-blind readers; their formats."""

import itertools
import math
import struct

import pytest

from fairseq_posenc.analysis import figures
from fairseq_posenc.basics.errors import UsageError

pytest.importorskip("matplotlib", reason="there are no figures without it")

# linear RGB as seen without one kind of cone: Machado, Oliveira, Fernandes 2009, severity 1
VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]


def linear(rgb):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]


def lab(rgb, vision):
    """CIELAB coordinates of a colour as *vision* sees it."""
    seen = [min(max(c, 0.0), 1.0) for c in times(VISION[vision], linear(rgb))]
    x, y, z = (a / sum(row) for a, row in zip(times(TO_XYZ, seen), TO_XYZ))
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 4 / 29 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def rgb_of(color):
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def distance(one, other, vision):
    return math.dist(lab(rgb_of(one), vision), lab(rgb_of(other), vision))


@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart(vision):
    colors = figures.COLORS
    for one, other in itertools.combinations(colors, 2):
        assert distance(one, other, vision) > 20, (one, other)
    for one, other in zip(colors, [*colors[1:], colors[0]]):
        assert distance(one, other, vision) > 35, (one, other)
    for color in colors:  # on white, seen as thin lines
        assert lab(rgb_of(color), vision)[0] < 75, color


def test_curves_are_told_apart_without_colour():
    looks = [(s["linestyle"], s["marker"]) for s in map(figures.curve_style, range(20))]
    assert len(set(looks)) == 20
    for one, other in zip(looks, looks[1:]):
        assert one[0] != other[0] and one[1] != other[1]


def test_heat_maps_are_read_in_grey_and_centred_on_zero():
    from matplotlib import colormaps

    grey = [lab(colormaps[figures.HEAT](i / 20)[:3], "normal")[0] for i in range(21)]
    assert all(later > earlier for earlier, later in zip(grey, grey[1:]))
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


def test_another_format_is_refused(tmp_path):
    figure, _ = figures.import_pyplot("--output").subplots()
    with pytest.raises(UsageError, match=r"--output .*a\.jpg: unknown format.*\.svg"):
        figures.save_figure(figure, tmp_path / "a.jpg")
    assert list(tmp_path.iterdir()) == []
