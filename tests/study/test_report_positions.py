"""What a report draws of the positions that a model has learned."""

from types import SimpleNamespace

import pytest

from fairseq_posenc.analysis import positions_figure
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.report import curves

pytest.importorskip("matplotlib", reason="an extra: study")


def test_positions_are_drawn_where_there_are_any(monkeypatch, tmp_path):
    def plot(checkpoint, output, *_):
        if "none" in checkpoint:
            raise positions_figure.NothingToDraw(f"{checkpoint}: has neither")
        if "stock" in checkpoint:
            raise UsageError(f"{checkpoint}: names no encoding")
        output.write_text("<svg></svg>")

    monkeypatch.setattr(positions_figure, "plot", plot)
    systems = [tmp_path / name for name in ("t5", "none", "stock")]
    for path in systems:
        path.touch()
    of = {
        path.name: [
            SimpleNamespace(folder=tmp_path, checkpoint=checkpoint, seed=seed)
            for seed, checkpoint in ((1, ""), (2, "gone"), (3, path.name))
        ]
        for path in systems
    }
    study = SimpleNamespace(finished=list(of), of=of.get)
    prose, drawn, failed = curves.positions_section(study).parts
    assert prose.text.endswith("Not drawn for none.")
    assert drawn.parts[0].svg == "<svg></svg>" and "seed 3" in drawn.parts[0].caption
    assert failed.items == ["stock: names no encoding"]
    nothing = SimpleNamespace(finished=["stock"], of=of.get)
    assert curves.positions_section(nothing).parts[1].items == ["stock: names no encoding"]
