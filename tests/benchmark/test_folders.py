"""fairseq-posenc benchmark --translate: what it measures of a model folder, and its mistakes."""

from argparse import Namespace

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tables import plain_table
from fairseq_posenc.benchmark import folders

FOLDER = Namespace(path="model", checkpoint="model.pt", export="ctranslate2")


def test_the_start_is_taken_off(tmp_path, monkeypatch):
    """Processes that take one second to start, and two more for every line."""
    pytest.importorskip("sacrebleu", reason="an extra: BLEU")

    def run(folder, setting, text, flags):
        out = text.replace(b"b", b"c") if setting.weights == "int8" else text
        return folders.Times(9.0, 1.0 + 2 * text.count(b"\n")), out

    monkeypatch.setattr(folders, "_run", run)
    source, reference = tmp_path / "a", tmp_path / "b"
    for path in (source, reference):
        path.write_text("a a a a a\nb b b b b\n")
    settings = folders.settings_of(FOLDER, [1], ["float32", "int8"])
    assert settings == [
        ("fairseq", "float32", 1),
        ("ctranslate2", "float32", 1),
        ("ctranslate2", "int8", 1),
    ]
    rows, signature = folders.measure(FOLDER, str(source), str(reference), settings, 2)
    found = [(row["start"], row["search"], row["same"]) for row in rows]
    assert found == [(1, 4, 2), (1, 4, 2), (1, 4, 1)]
    assert [row["bleu"] for row in rows] == pytest.approx([100, 100, 50])
    assert "tok:13a" in signature
    assert "ctranslate2  int8           1   1.00    4.00  9.00   50.00" in plain_table(
        rows, folders.COLUMNS
    )
    for content, words in (
        (b"one line\n", "has 1 lines, and .* has 2"),
        (b"\xe9\n", "line 1: not UTF-8"),
    ):
        reference.write_bytes(content)
        with pytest.raises(UsageError, match=words):
            folders.measure(FOLDER, str(source), str(reference), settings, 1)
