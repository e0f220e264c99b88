"""Documents become samples of sentences in context, once, and never with another setting."""

from support.recipes import EXAMPLES, bash, succeed

PREPARE = EXAMPLES / "document_translation" / "prepare.sh"


def test_documents_are_prepared_once(tmp_path):
    (tmp_path / "texts").mkdir()
    for split in ("train", "valid", "test"):
        for lang, text in (("en", "It is new.\nA lamp.\n\n"), ("de", "Es ist neu.\nDie.\n\n")):
            (tmp_path / "texts" / f"{split}.{lang}").write_text(text * 2)
    succeed(PREPARE, "texts", "out", cwd=tmp_path)
    data = tmp_path / "out" / "data-bin"
    assert "<brk>" in (data / "dict.en.txt").read_text()
    assert "CONTEXT=0,3\n" in (data / "text.settings").read_text()
    assert succeed(PREPARE, "texts", "out", cwd=tmp_path).stdout == "out/data-bin is there\n"
    other = bash(PREPARE, "texts", "out", cwd=tmp_path, CONTEXT="whole")
    assert other.returncode == 1 and "CONTEXT=whole" in other.stderr
    assert "out has SOURCE=en" in other.stderr and "CONTEXT=0,3" in other.stderr
