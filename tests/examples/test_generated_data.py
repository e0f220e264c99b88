"""Generated data: the same from the same seed, without leaks, and as fairseq reads them."""

import subprocess
import sys
from argparse import ArgumentTypeError
from random import Random

import pytest
from fairseq.data import Dictionary, data_utils
from support.commands import ROOT
from support.made_up_tasks import registry, splits, writing
from support.own_extensions import files

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import digest_of_file

ANSWER, GENERATED_TASKS = registry.ANSWER, registry.GENERATED_TASKS
Settings, split = splits.Settings, splits.split
write_task = writing.write_task
SMALL = Settings("copy", "language_modeling", (1, 2, 3, 4), (2, 4, 6), 400, 10, 20, 1)


def inputs(samples):
    return [tuple(given) for given, _ in samples]


def test_no_input_of_a_test_is_in_the_training_data():
    for name, task in GENERATED_TASKS.items():
        lengths = tuple(task.least + task.step * more for more in range(4))
        settings = SMALL._replace(task=name, lengths=lengths, test_lengths=lengths[::3])
        found = split(settings)
        assert len(found.train) == 400 and [*found.test] == [*lengths[::3]]
        seen = {*inputs(found.train)}
        for length, samples in found.test.items():
            tested = inputs(samples)
            assert samples and len({*tested}) == len(tested) <= 20
            assert length in found.shared or not seen & {*tested}
            assert not {*tested} & {*inputs(found.valid)} or length in found.shared
        assert len({*inputs(found.valid)}) == len(found.valid)


@pytest.mark.parametrize("tests, validations", [(10, 200), (1, 1), (200, 1)])
def test_no_set_is_empty(tests, validations):
    for name, task in GENERATED_TASKS.items():
        for length in range(task.least, task.least + 5 * task.step, task.step):
            settings = Settings(name, "", (length,), (length,), 8, validations, tests, 1)
            found = split(settings)
            assert found.valid and found.test[length] and len(found.train) == 8


def test_lengths_of_a_training_are_equally_frequent():
    found = split(SMALL._replace(samples=402))
    sizes = [len(given) for given, _ in found.train]
    counts = [sizes.count(length) for length in SMALL.lengths]
    assert sum(counts) == 402 and max(counts) - min(counts) <= 1
    assert found.shared == []
    assert split(SMALL._replace(task="parity")).shared == [1, 2]


def test_a_task_with_one_input_of_a_length_ends(monkeypatch):
    sizes = ("one", "", "", "", ("a",), lambda length, random: ("a" * length, "a"))
    monkeypatch.setitem(GENERATED_TASKS, "one", registry.GeneratedTask(*sizes))
    assert split(SMALL._replace(task="one")).shared == [1, 2, 3, 4]


def test_the_same_on_every_machine():
    """The functions of Python's generator used here are the same since version 3.8."""
    sample = GENERATED_TASKS["copy"].sample(12, Random("copy 12 train 1"))[0]
    assert "".join(sample) == "dabgefahagaa"


def test_seeds_and_settings_decide(tmp_path):
    def digest(name, **changes):
        folder = tmp_path / name
        folder.mkdir()
        write_task(SMALL._replace(**changes), str(folder))
        return digest_of_file(folder / "train.bin")

    first = digest("a")
    assert digest("b") == first
    assert digest("c", test_lengths=(2, 4, 8)) == first  # another test, the same training
    assert digest("d", seed=2) != first


def read(folder, name, dictionary):
    data = data_utils.load_indexed_dataset(str(folder / name), dictionary)
    return [dictionary.string(line).split() for line in data]


def test_lines_of_a_language_model(tmp_path):
    written = write_task(SMALL, str(tmp_path))
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    assert dictionary.symbols[dictionary.nspecial :] == [*"abcdefgh", ANSWER]
    expected = split(SMALL)
    lines = [[*given, ANSWER, *answer] for given, answer in expected.test[6]]
    assert read(tmp_path, "length6", dictionary) == lines
    assert f"length6 {len(lines)} samples of at most {6 + 1 + 6 + 1} symbols" in written


def test_pairs_of_a_translation(tmp_path):
    written = write_task(SMALL._replace(task="addition", family="translation"), str(tmp_path))
    for side in ("input", "output"):
        dictionary = Dictionary.load(str(tmp_path / f"dict.{side}.txt"))
        assert ANSWER not in dictionary.indices
    given, answer = (
        read(tmp_path, f"length2.input-output.{side}", dictionary) for side in ("input", "output")
    )
    for one, two in zip(given, answer):
        assert eval("".join(one).rstrip("=")) == int("".join(two))
    assert written.endswith(f"of at most {6 + 1 + 6 + 1 + 1} symbols")


def test_lengths_are_read():
    texts = ("1-3,8", "1-6:2,5", " 7 ,2", "3-3")
    assert [*map(writing.read_lengths, texts)] == [(1, 2, 3, 8), (1, 3, 5), (2, 7), (3,)]


@pytest.mark.parametrize("text", ["", "a", "0", "0-3", "5-3", "1-", "-1", "1-9:0", "9999999", "²"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="expected lengths from 1 to 100,000"):
        writing.read_lengths(text)


@pytest.mark.parametrize(
    "words, said",
    [
        ("copi", "TASK copi: must be copy or copy_repeats or"),
        (
            "modular_arithmetic --lengths 1-4",
            "--lengths 2: modular_arithmetic has the",
        ),
        ("recall --lengths 7", "--lengths 7: recall has the lengths 8, 9, 10, …"),
        ("copy_unique --test-lengths 101", "--test-lengths 101: copy_unique has .*at most 100"),
        ("copy --samples 5", "--samples 5: must be at least 10, one for each of --lengths"),
        ("copy --test-samples 0", "--test-samples 0: must be at least 1"),
        ("counting --family masked_lm", "--family masked_lm: counting is for translation and"),
    ],
)
def test_what_makes_no_sense_is_refused(words, said, tmp_path):
    task, *flags = words.split()
    with pytest.raises(UsageError, match=said):
        writing.main([task, str(tmp_path / "out"), *flags])
    assert [*tmp_path.iterdir()] == []


def test_the_command_writes_and_says_what(tmp_path, capsys):
    words = ["parity", str(tmp_path / "p"), "--lengths", "1-5"]
    writing.main([*words, "--test-lengths", "2,9", "--samples", "60"])
    said = capsys.readouterr().out
    assert "train 60, valid" in said and "length9 200 samples of at most 12 symbols" in said
    assert "the test inputs of length 1, 2" in said
    with pytest.raises(UsageError, match="exists already"):
        writing.main(words)


@pytest.mark.parametrize("name", sorted(GENERATED_TASKS))
def test_every_task_can_be_written_without_naming_its_lengths(name, tmp_path, capsys):
    words = [name, str(tmp_path / "data"), "--samples", "12"]
    writing.main([*words, "--valid-samples", "1", "--test-samples", "1"])
    said = capsys.readouterr().out
    assert "train 12, " in said
    lengths = [n for n in (5, 10, 15, 20, 30, 40) if GENERATED_TASKS[name].among((n,))]
    assert all(f"length{n} 1" in said for n in lengths)


def test_a_task_of_ones_own_is_written(tmp_path):
    """The file of docs/adding.md, as another process reads it."""
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "__init__.py").write_text(files()["my_tasks/__init__.py"])
    program = ROOT / "examples" / "generated_tasks" / "make.py"

    def rotated(out, lengths):
        words = ["rotated", out, "--user-dir", "my_tasks", "--lengths", lengths]
        words += ["--test-lengths", "4,12", "--samples", "40"]
        return subprocess.run(
            [sys.executable, program, *words], cwd=tmp_path, capture_output=True, text=True
        )

    done = rotated("data", "2-8:2")
    assert done.returncode == 0 and "length12" in done.stdout
    refused = rotated("odd", "3")
    assert "--lengths 3: rotated has the lengths 2, 4, 6, …" in refused.stderr
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
