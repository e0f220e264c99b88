"""Changed data are trained on again, or refused; with unchanged data, recipes resume."""

import json
import os
import shutil

import pytest
from support.language_models import COMPARE
from support.recipes import EXAMPLES, assert_error, bash, shell, write

pytest_plugins = ["support.stub_programs"]

READING = EXAMPLES / "reading"


def digest(cwd):
    result = shell("data_digest data", cwd)
    assert result.returncode == 0 and len(result.stdout) == 65
    return result.stdout


def data(folder, text="a b", **others):
    """Made-up binary data; further arguments are contents by file name, with - for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"dict-txt": "a 1\nb 1\n", "train-bin": text, "train-idx": "2", "valid-bin": "a"}
    for name, content in {**files, "valid-idx": "1", **others}.items():
        (folder / name.replace("-", ".")).write_text(content)


def age(folder, seconds=1000):
    """Let a folder be as if it had been written before."""
    for path in [folder, *folder.rglob("*")]:
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


# --- digests


def test_a_digest_is_that_of_what_a_training_reads(tmp_path):
    data(tmp_path / "data")
    (tmp_path / "data" / "label").mkdir()
    write(tmp_path / "data" / "label" / "train.label", ["0", "1"])
    first = digest(tmp_path)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    age(tmp_path / "copy")
    for name in ("preprocess.log", "task.yaml", "test.bin", "train.log", "README.md"):
        (tmp_path / "data" / name).write_text("anything")
    assert digest(tmp_path) == first == shell("data_digest copy", tmp_path).stdout
    for name in ("dict.txt", "train.bin", "valid.idx", "label/train.label", "label/dict.txt"):
        path = tmp_path / "data" / name
        before = path.read_text() if path.exists() else None
        path.write_text("1\n0\n")
        assert digest(tmp_path) != first
        path.unlink() if before is None else path.write_text(before)
    (tmp_path / "data" / "train.idx").rename(tmp_path / "data" / "train.index")
    assert digest(tmp_path) != first


def test_of_large_files_both_ends_are_read(tmp_path):
    data(tmp_path / "data")
    path, size = tmp_path / "data" / "train.bin", 2**27 + 100
    os.truncate(path, size)
    found = {digest(tmp_path)}
    for place in (0, size - 1):
        with open(path, "r+b") as stream:
            stream.seek(place)
            stream.write(b"x")
        found.add(digest(tmp_path))
    os.truncate(path, size + 1)
    assert len({*found, digest(tmp_path)}) == 4


# --- steps and runs


def test_steps_are_repeated_if_the_data_have_changed_and_skipped_if_not(tmp_path):
    body = "STEPS=steps\nuse_data data\nchain x\nstep a -- true\nstep b -- true"
    data(tmp_path / "data")

    def done():
        result = shell(body, tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stderr.count("already done")

    assert [done(), done()] == [0, 2]
    data(tmp_path / "data")
    assert done() == 2
    data(tmp_path / "data", "b a")
    assert [done(), done()] == [0, 2]
    assert shell("DRY_RUN=1\nuse_data absent", tmp_path).returncode == 0


def test_steps_of_an_earlier_version_are_skipped_if_they_are_newer_than_the_data(tmp_path):
    earlier = "STEPS=steps\nchain x\nstep a -- true\nstep b -- true"
    now = earlier.replace("chain", "use_data data\nchain")
    data(tmp_path / "data")
    age(tmp_path / "data")
    assert shell(earlier, tmp_path).returncode == 0
    assert shell(now, tmp_path).stderr.count("already done") == 2
    data(tmp_path / "data")  # and they note what they are of
    assert shell(now, tmp_path).stderr.count("already done") == 2
    shutil.rmtree(tmp_path / "steps")
    assert shell(earlier, tmp_path).returncode == 0
    age(tmp_path / "steps")
    assert shell(now, tmp_path).stderr.count("already done") == 0


def test_a_run_is_known_by_its_data(tmp_path):
    body = "use_data data\nsame_data --name run"
    data(tmp_path / "data")
    for text in ("a b", "b a"):  # nothing is trained yet
        data(tmp_path / "data", text)
        assert shell(body, tmp_path).returncode == 0
    (tmp_path / "run" / "checkpoint_1_5.pt").touch()
    data(tmp_path / "data", "b a")
    assert shell(body, tmp_path).returncode == 0
    data(tmp_path / "data", "a b")
    assert_error(shell(body, tmp_path), "run was trained on other data than data", "another --name")


@pytest.mark.parametrize("file", ["command", "train.log"])
def test_a_run_of_an_earlier_version_goes_on_unless_the_data_are_newer(tmp_path, file):
    body = "use_data data\nsame_data --name run"
    data(tmp_path / "data")
    (tmp_path / "run").mkdir()
    for name in ("checkpoint_last.pt", "command", "train.log"):
        (tmp_path / "run" / name).touch()
    os.utime(tmp_path / "run" / file, (1, 1))
    refused = shell(body, tmp_path)
    assert_error(refused, "run is of an earlier version", "another --name", "touch its command")
    (tmp_path / "run" / file).touch()
    assert shell(body, tmp_path).returncode == 0
    os.utime(tmp_path / "run" / file, (1, 1))
    assert shell(body, tmp_path).returncode == 0  # noted


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
        result = bash(script, *given, cwd=tmp_path, **stubs.variables)
        assert result.returncode == 0, result.stderr[-2000:]
        return [c.split("--seed ")[1].split()[0] for c in stubs.called("fairseq-train")], result

    return run


TASK = ["CoLA: {train: t, valid: v, text: 1, label: 2, labels: 2, epochs: 1, batch: 2, lr: 1e-5}"]


@pytest.mark.parametrize("recipe, task", [("glue", "CoLA"), ("reading", "copa")])
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


def test_scores_of_another_length_of_training_are_not_shown_again(tmp_path, stubs):
    """RoFormer's Table 5: fine-tuned for more epochs, or on other data, a model is scored again."""
    data(tmp_path / "cail", examples="2\n", task="cail 2\n")
    write(tmp_path / "model.pt", ["weights"])
    script = EXAMPLES / "long_chinese" / "finetune.sh"
    run = tmp_path / "out" / "mine-512" / "cail" / "lr2e-5-batch32-seed1"

    def scored(*options):
        given = ["cail", "model.pt", "out", "--name", "mine", "--lengths", "512", "--seeds", "1"]
        result = bash(script, *given, "--cpu", *options, cwd=tmp_path, **stubs.variables)
        assert result.returncode == 0, result.stderr[-2000:]
        return len(stubs.called("fairseq-validate")), {path.name for path in run.glob("score-*")}

    both = ("--scored", "512 1024")
    assert scored(*both, "--epochs", "3") == (2, {"score-512.log", "score-1024.log"})
    assert scored(*both, "--epochs", "3")[0] == scored("--epochs", "3")[0] == 0
    assert scored("--epochs", "5") == (1, {"score-512.log"})
    assert scored(*both, "--epochs", "5") == (1, {"score-512.log", "score-1024.log"})
    data(tmp_path / "cail", "b a")
    assert scored(*both, "--epochs", "5")[0] == 2


# --- language models, translation


def test_a_language_model_is_not_scored_on_another_corpus(tmp_path, stubs):
    data(tmp_path / "data", **{"test-bin": "a", "test-idx": "1"})
    given = ["data", "out", "--cpu", "--encodings", "t5", "--length", "16", "--batch", "16"]

    def compare(*options):
        return bash(COMPARE, *given, *options, cwd=tmp_path, **stubs.variables)

    first = compare("--seeds", "1 2")
    assert first.returncode == 0, first.stderr[-2000:]
    assert len(stubs.called("fairseq-train")) == 2
    data(tmp_path / "data")
    assert compare("--seeds", "1 2").returncode == 0 and not stubs.called("fairseq")
    data(tmp_path / "data", "b a")  # of the same lengths
    refused = compare("--seeds", "1")
    assert_error(refused, "out/t5-seed1 was trained on other data than data", "another OUT")
    assert not stubs.called("fairseq")
    other = compare("--seeds", "3")
    assert other.returncode == 0 and other.stderr.count("is of other data than data has now") == 2
    stubs.called("")
    # another test set is scored again
    for text in ("a", "a", "b"):
        data(tmp_path / "data", "b a", **{"test-bin": text})
        assert compare("--seeds", "3", "--subset", "test").returncode == 0
    assert [call.split()[0] for call in stubs.called("fairseq")] == ["fairseq-eval-lm"] * 2


def test_a_language_model_of_an_earlier_version_goes_on(tmp_path, stubs):
    data(tmp_path / "data")
    age(tmp_path / "data")
    given = ["data", "out", "--cpu", "--encodings", "t5", "--seeds", "1", "--length", "16"]
    given += ["--batch", "16"]
    run = tmp_path / "out" / "t5-seed1"

    def compare():
        return bash(COMPARE, *given, cwd=tmp_path, **stubs.variables)

    assert compare().returncode == 0
    for step in (tmp_path / "out" / "steps").iterdir():
        step.unlink()
    (run / "data.sha256").unlink()
    stubs.called("")
    again = compare()
    assert again.returncode == 0 and "t5-seed1: already trained" in again.stderr
    assert not stubs.called("fairseq-train") and (run / "data.sha256").exists()
    (run / "data.sha256").unlink()
    data(tmp_path / "data", "b a")
    assert_error(compare(), "t5-seed1 is of an earlier version", "another OUT")


def test_a_translation_run_is_not_continued_with_other_texts(tmp_path, stubs):
    (tmp_path / "texts").mkdir()
    languages = ["--source-lang", "de", "--target-lang", "en"]
    kind = ["--subwords", "none", "--tokenizer", "none", "--cpu", "--name", "run", "--workers", "1"]

    def run(text):
        for name in ("train.de", "train.en", "valid.de", "valid.en"):
            write(tmp_path / "texts" / name, [text])
        given = ["texts", "out", "transformer", *languages, *kind]
        script = EXAMPLES / "translation" / "run.sh"
        result = bash(script, *given, cwd=tmp_path, **stubs.variables)
        return result, len(stubs.called("fairseq-train"))

    assert run("a b")[1] == 1  # without a test set to translate, it ends there
    refused, trained = run("b a")
    assert_error(refused, "out/run was trained on other data than", "data-bin", "another --name")
    assert not trained


def test_a_stage_is_not_believed_for_another_corpus(tmp_path, stubs):
    data(tmp_path / "data")
    script = EXAMPLES / "long_chinese" / "train.sh"
    given = ["roformer", "data", "--stages", "16x2x2", "--cpu", "--save-dir", "run"]

    def train():
        return bash(script, *given, cwd=tmp_path, **stubs.variables)

    first, again = train(), train()
    assert first.returncode == again.returncode == 0, again.stderr[-2000:]
    assert "stage 1: already trained" in again.stderr and len(stubs.called("fairseq-train")) == 1
    data(tmp_path / "data", "b a")
    assert_error(train(), "run/stage1 was trained on other data", "another --save-dir")


# --- options of preparing


def test_leaving_out_questions_is_another_preparation(tmp_path, stubs):
    (tmp_path / "pre").mkdir()
    for name, lines in (("dict.txt", ["a 1"]), ("bpe.codes", ["a b"]), ("text", ["lang en"])):
        write(tmp_path / "pre" / name, lines)
    for split in ("train", "dev"):
        (tmp_path / f"{split}-v2.0.json").write_text(json.dumps({"data": []}))

    def prepare(*options):
        given = ["squad", ".", "pre", "out", *options]
        result = bash(READING / "prepare.sh", *given, cwd=tmp_path, **stubs.variables)
        assert result.returncode == 0, result.stderr
        return ["--leave-out-wrong" in call for call in stubs.called("python -m fairseq_posenc")]

    assert prepare("--leave-out-wrong") == [True]
    assert prepare("--leave-out-wrong") == []
    assert prepare() == [False]
    assert prepare() == []
