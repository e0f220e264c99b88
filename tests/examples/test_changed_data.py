"""Changed data are trained on again, or refused; with unchanged data, recipes resume."""

from support.language_models import COMPARE
from support.recipes import assert_error, bash

pytest_plugins = ["support.stub_programs"]


def data(folder, text="a b", **others):
    """Made-up binary data; further arguments are contents by file name, with - for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"dict-txt": "a 1\nb 1\n", "train-bin": text, "train-idx": "2", "valid-bin": "a"}
    for name, content in {**files, "valid-idx": "1", **others}.items():
        (folder / name.replace("-", ".")).write_text(content)


# --- language models


def test_a_language_model_is_not_scored_on_another_corpus(tmp_path, stubs):
    data(tmp_path / "data", **{"test-bin": "a", "test-idx": "1"})
    given = ["data", "out", "--cpu", "--encodings", "t5", "--length", "16", "--batch", "16"]

    def compare(*options):
        return bash(COMPARE, *given, *options, cwd=tmp_path, **stubs.variables)

    assert compare("--seeds", "1 2").returncode == 0
    assert len(stubs.called("fairseq-train")) == 2
    data(tmp_path / "data")
    assert compare("--seeds", "1 2").returncode == 0 and not stubs.called("fairseq")
    data(tmp_path / "data", "b a")  # of the same lengths
    refused = compare("--seeds", "1")
    assert_error(refused, "out/t5-seed1 was begun with other data than data has now")
    assert not stubs.called("fairseq")
    other = compare("--seeds", "3")
    assert other.returncode == 0 and other.stderr.count("is of other data than data has now") == 2
    stubs.called("")
    # another test set is scored again
    for text in ("a", "a", "b"):
        data(tmp_path / "data", "b a", **{"test-bin": text})
        assert compare("--seeds", "3", "--subset", "test").returncode == 0
    assert [call.split()[0] for call in stubs.called("fairseq")] == ["fairseq-eval-lm"] * 2
