"""The style of all figures: told apart in grey, and their formats."""

import struct

import pytest

from fairseq_posenc.analysis import figures
from fairseq_posenc.basics.errors import UsageError

pytest.importorskip("matplotlib", reason="there are no figures without it")
pytestmark = pytest.mark.properties


def lightness(rgb):
    """Luminance of an sRGB colour from 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear))


def test_curves_are_told_apart_without_colour():
    looks = [(s["linestyle"], s["marker"]) for s in map(figures.curve_style, range(20))]
    assert len(set(looks)) == 20
    for one, other in zip(looks, looks[1:]):
        assert one[0] != other[0] and one[1] != other[1]
    for color in figures.COLORS:  # on white, seen as thin lines
        assert lightness([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]) < 0.5, color


def test_heat_maps_are_read_in_grey_and_centred_on_zero():
    from matplotlib import colormaps

    grey = [lightness(colormaps[figures.HEAT](i / 20)[:3]) for i in range(21)]
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
