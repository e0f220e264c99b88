"""Heads of pre-training in a checkpoint that is exported."""

import pytest
from support.conversion import convert, reload
from support.foreign_models import trained

from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.packs.pretraining.heads import SpanBoundaryLayers

pytest_plugins = ["support.conversion"]


@pytest.mark.parametrize(
    "format, name, encoding",
    [
        ("hf-roformer", "RoFormerForMaskedLM", "rotary"),
        ("hf-roberta", "RobertaForMaskedLM", "learned"),
    ],
)
def test_heads_of_pretraining_are_left_out(format, name, encoding, transformers, tmp_path, capsys):
    checkpoint = trained(tmp_path / "ours", "sentence_relation", position_encoding=encoding)
    state = load_file(checkpoint)
    spans = SpanBoundaryLayers(16, 16).state_dict()
    state["model"].update({f"span_boundary_head.{name}": value for name, value in spans.items()})
    write_checkpoint(state, checkpoint)
    convert("export", format, checkpoint, tmp_path / "out", "--verify")
    notes = capsys.readouterr().out
    assert "note: the head sentence_relation, which only --pairs needs, is left out" in notes
    assert "note: span_boundary_head, which only --span-boundary-objective needs, is left" in notes
    assert type(reload(transformers, name, tmp_path / "out")).__name__ == name
