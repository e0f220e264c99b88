"""Steps are done once, and again when what decides them has changed; half a step is not done."""

import io
import os
import shutil
import sys

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps import processes
from fairseq_posenc.steps.markers import TRAINING_FILES, digest_of
from fairseq_posenc.steps.step import Step, check, do, part_of

ALL = ("*",)


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digest_of.cache_clear()


def made(name, source, target, **more):
    """A step that notes its name and copies a file."""
    words = ["bash", "-c", f"echo {name} >>log; cat {source} >{target}; {more.pop('then', ':')}"]
    return Step(name, more.pop("folder", path()), words, [(source, ALL)], [target], **more)


def path():
    from pathlib import Path

    return Path("out").resolve()


def run(*steps):
    """The names of the steps that are run."""
    open("log", "w").close()
    digest_of.cache_clear()
    for step in steps:
        do(step)
        digest_of.cache_clear()
    return open("log").read().split()


def write(name, text):
    with open(name, "w") as stream:
        stream.write(text)


def test_steps_are_repeated_when_their_inputs_or_words_change(capfd):
    write("a", "1")
    first, second = made("first", "a", "b"), made("second", "b", "c")
    assert run(first, second) == ["first", "second"]
    assert run(first, second) == [] and capfd.readouterr().err.count("already done") == 2
    os.utime("a", (1, 1))
    assert run(first, second) == []
    write("a", "2")
    assert run(first, second) == ["first", "second"]
    # other words, or other settings, repeat what depends on them even where the result is the same
    changed = made("first", "a", "b", then="true")
    assert run(changed, second) == ["first", "second"]
    assert run(changed, second._replace(settings=["x"])) == ["second"]
    # a step before them does not concern those that read nothing of it
    assert run(made("other", "a", "d"), changed, second._replace(settings=["x"])) == ["other"]


def test_workers_decide_nothing():
    step = Step("one", path(), ["bash", "-c", "echo x >>log", "--workers", "2"])
    assert run(step) == ["x"]
    assert run(step._replace(words=[*step.words[:-1], "3"])) == []


def test_a_folder_may_be_moved(tmp_path):
    write("a", "1")
    folder, other = tmp_path / "one", tmp_path / "two"
    words = ["cp", "a", str(folder / "b")]
    folder.mkdir()
    do(Step("copy", folder, words, [("a", ALL)], [str(folder / "b")]))
    folder.rename(other)
    os.utime(other / "b", (1, 1))
    words = ["cp", "a", str(other / "b")]
    do(Step("copy", other, words, [("a", ALL)], [str(other / "b")]))
    assert (other / "b").stat().st_mtime == 1


def test_a_deleted_output_is_made_again(capfd):
    write("a", "1")
    steps = made("first", "a", "b"), made("second", "b", "c")
    run(*steps)
    os.unlink("b")
    assert run(*steps) == ["first"]
    assert "first: was done, but b is gone" in capfd.readouterr().err


def test_an_interrupted_step_is_not_believed_though_its_outputs_are_there():
    write("a", "1")
    good, bad = made("one", "a", "b"), made("one", "a", "b", then="false")
    assert run(good) == ["one"]
    with pytest.raises(UsageError, match="one: bash stopped with status 1"):
        run(bad)
    assert os.path.exists("b")
    assert run(good) == ["one"] and run(good) == []


def test_a_step_without_its_output_or_input_is_one_line():
    with pytest.raises(UsageError, match="one: true ended without making b"):
        do(Step("one", path(), ["true"], outputs=["b"]))
    assert not (path() / "steps").exists()
    with pytest.raises(UsageError, match="one: absent: no such file or folder"):
        do(Step("one", path(), ["true"], [("absent", ALL)]))
    with pytest.raises(UsageError, match="no-such-command: No such file.*activate"):
        do(Step("one", path(), ["no-such-command"]))
    with pytest.raises(UsageError, match="bash was killed; is the memory exhausted"):
        do(Step("one", path(), ["bash", "-c", "kill -KILL $$"]))


def test_several_commands_are_one_step():
    words = ["mkdir", "b", "&&", "false", "&&", "touch", "b/c"]
    with pytest.raises(UsageError, match="false stopped with status 1"):
        do(Step("one", path(), words, outputs=["b/c"]))
    assert os.listdir("b") == []


def test_a_log_is_shown_and_whole_or_absent(capfd):
    words = ["bash", "-c", "echo out; echo err >&2; test -e ready"]
    step = Step("one", path(), words, log="logs/one.log")
    with pytest.raises(UsageError):
        do(step)
    assert os.listdir("logs") == ["one.log.part"]
    assert "out\nerr" in capfd.readouterr().err
    write("ready", "")
    do(step)
    assert open("logs/one.log").read() == "out\nerr\n"
    os.unlink("logs/one.log")
    do(step)
    assert os.path.exists("logs/one.log")


def test_a_log_is_whole_though_nobody_reads_what_is_shown(monkeypatch):
    class Closed(io.StringIO):
        """Standard error whose reader has gone; what we say ourselves is of no interest here."""

        @property
        def buffer(self):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    do(Step("one", path(), ["bash", "-c", "head -c 300000 /dev/zero"], log="one.log"))
    assert os.path.getsize("one.log") == 300000


def test_the_size_of_a_folder_is_told_meanwhile(capfd, monkeypatch):
    monkeypatch.setattr(processes, "_REPORT", 0.1)
    words = ["bash", "-c", "mkdir b; head -c 3000000 /dev/zero >b/c; sleep 0.5"]
    do(Step("one", path(), words, watch="b"))
    assert "one: 0 s so far, 3 MB in b" in capfd.readouterr().err


def folder_step(text, *more):
    part = part_of("out/made")
    words = ["mkdir", "-p", f"{part}/below", "&&", "cp", text, f"{part}/known", "&&", *more, "true"]
    return Step("one", path(), words, [(text, ALL)], replaces=["out/made"], known_by="known")


def test_a_folder_is_replaced_whole_and_an_equal_one_stays():
    for text in "1", "2":
        write(text, text)
    write("also 1", "1")
    do(folder_step("1"))
    os.utime("out/made/known", (1, 1))
    write("out/made/of.log", "yesterday")
    do(folder_step("also 1"))
    assert os.stat("out/made/known").st_mtime == 1
    write("out/made/old", "")
    do(folder_step("2"))
    assert sorted(os.listdir("out/made")) == ["below", "known"]
    assert open("out/made/known").read() == "2"
    with pytest.raises(UsageError):
        do(folder_step("1", "false", "&&"))
    assert open("out/made/known").read() == "2"
    do(folder_step("1"))
    assert sorted(os.listdir("out")) == [".lock", "made", "steps"]


@pytest.mark.parametrize("place", ["own", "own/below", "own/file", "link/below", "way/own/below"])
def test_a_folder_with_an_input_in_it_is_not_replaced(place):
    os.makedirs("own/below")
    write("own/file", "")
    os.mkdir("owner")  # a name that only begins alike
    os.symlink("own", "link")
    os.symlink(".", "way")
    step = Step("one", path(), ["true"], replaces=["own"], known_by="file", option="OUT")
    match = f"own: would be replaced, and {place} lies in it; give another OUT"
    with pytest.raises(UsageError, match=match):
        check(step._replace(inputs=[("owner", ALL), (place, ALL)]))
    check(step._replace(inputs=[("owner", ALL), (".", ALL)]))


def test_a_folder_that_no_recipe_made_is_not_replaced():
    for name, file in (("own", "made"), ("empty", ".lock"), ("other", "mine")):
        os.mkdir(name)
        write(f"{name}/{file}", "")
    step = Step("one", path(), ["touch", "ran"], known_by="made", option="--model")
    for name in ("own", "own/", "empty", "absent"):
        check(step._replace(replaces=[name]))
    for name in ("other", "other/mine"):
        match = f"{name}: exists, and is not .* no made.* another --model"
        with pytest.raises(UsageError, match=match):
            do(step._replace(replaces=[name]))
    assert not os.path.exists("ran") and os.path.exists("other/mine")


def test_a_digest_is_that_of_what_a_training_reads(tmp_path):
    def digest(folder="data"):
        digest_of.cache_clear()
        return digest_of(folder, TRAINING_FILES)

    os.makedirs("data/label")
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
        write(f"data/{name}", name)
    write("data/label/train.label", "0")
    first = digest()
    shutil.copytree("data", "copy")
    for name in ("preprocess.log", "task.yaml", "test.bin", "train.log", "README.md"):
        write(f"data/{name}", "anything")
    assert digest() == first == digest("copy")
    for name in ("dict.txt", "train.bin", "valid.idx", "label/train.label", "label/dict.txt"):
        before = open(f"data/{name}").read() if os.path.exists(f"data/{name}") else None
        write(f"data/{name}", "other")
        assert digest() != first
        if before is None:
            os.unlink(f"data/{name}")
        else:
            write(f"data/{name}", before)
    os.rename("data/train.idx", "data/train.index")
    assert digest() != first
    before = digest()
    os.mkdir("data/.hidden")
    write("data/.hidden/train.bin", "anything")
    assert digest() == before
    log = digest("data/train.log")
    write("data/train.log", "an input by itself")
    assert digest("data/train.log") != log


def test_large_files_count_by_both_ends():
    os.mkdir("data")
    size = 2**27 + 100
    write("data/train.bin", "")
    os.truncate("data/train.bin", size)
    found = {digest_of("data")}
    for place in (0, size - 1):
        with open("data/train.bin", "r+b") as stream:
            stream.seek(place)
            stream.write(b"x")
        digest_of.cache_clear()
        found.add(digest_of("data"))
    os.truncate("data/train.bin", size + 1)
    digest_of.cache_clear()
    assert len({*found, digest_of("data")}) == 4
