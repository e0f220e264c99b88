"""Exports of models trained with --document-mask: they take each text for one document."""

import pytest
from support.conversion import convert
from support.foreign_models import trained

PACKED = {"document_mask": True, "position_separators": "</s></s>"}


@pytest.mark.parametrize(
    "name, package, further",
    [
        ("hf-roformer", "transformers", ["--verify"]),
        ("onnx", "onnxruntime", []),
        ("ctranslate2", "ctranslate2", []),
    ],
)
def test_exports_say_that_a_text_is_one_document(name, package, further, tmp_path, capsys):
    pytest.importorskip(package, reason="the format needs it")
    path = trained(tmp_path / "ours", position_encoding="rotary", **PACKED)
    convert("export", name, path, tmp_path / "out", *further)
    assert "the exported model takes each text for one document" in capsys.readouterr().out
