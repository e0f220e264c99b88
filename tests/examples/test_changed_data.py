"""Changed data are trained on again, or refused; with unchanged data, recipes resume."""

import pytest
from support.language_models import COMPARE
from support.recipes import EXAMPLES, assert_error, bash, succeed, write

pytest_plugins = ["support.stub_programs"]


def data(folder, text="a b", **others):
    """Made-up binary data; further arguments are contents by file name, with - for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"dict-txt": "a 1\nb 1\n", "train-bin": text, "train-idx": "2", "valid-bin": "a"}
    for name, content in {**files, "valid-idx": "1", **others}.items():
        (folder / name.replace("-", ".")).write_text(content)


def contents(folder):
    """The bytes of all files in a folder and below."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- fine-tuning


@pytest.fixture
def finetune(tmp_path, stubs):
    """Fine-tune on a task by a recipe; returns the seeds trained, and what was said."""
    data(tmp_path / "CoLA", **{"examples": "2\n"})
    write(tmp_path / "CoLA" / "task.yaml", TASK)
    data(tmp_path / "copa", **{"examples": "2\n", "task": "copa 2\n"})
    for task in ("CoLA", "copa"):
        (tmp_path / task / "label").mkdir()
    write(tmp_path / "model.pt", ["weights"])

    def run(recipe, task, *seeds):
        few = ["--seeds", " ".join(seeds), "--lr", "1e-5", "--cpu"]
        more = ["--no-model"] if recipe == "glue" else []
        given = [task, "model.pt", "out", "--name", "mine", *few, *more]
        script = EXAMPLES / recipe / "finetune.sh"
        result = succeed(script, *given, cwd=tmp_path, **stubs.variables)
        return [c.split("--seed ")[1].split()[0] for c in stubs.called("fairseq-train")], result

    return run


TASK = ["CoLA: {train: t, valid: v, text: 1, label: 2, labels: 2, epochs: 1, batch: 2, lr: 1e-5}"]


@pytest.mark.parametrize("recipe, task", [("glue", "CoLA")])
def test_corrected_labels_are_trained_on(tmp_path, finetune, recipe, task):
    labels = tmp_path / task / "label" / "train.label"
    write(labels, ["0", "1"])
    assert finetune(recipe, task, "1", "2")[0] == ["1", "2"]
    write(labels, ["0", "1"])
    assert finetune(recipe, task, "1", "2")[0] == []
    write(labels, ["1", "1"])
    seeds, result = finetune(recipe, task, "1")
    assert seeds == ["1"]
    (warning,) = [line for line in result.stderr.split("\n") if "is of other data" in line]
    assert f"out/mine/{task}/lr1e-5-batch" in warning and "seed2: is of other data" in warning


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
