"""Generated data: the same from the same seed, without leaks, and as fairseq reads them."""

from random import Random

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import digest_of_file
from fairseq_posenc.cli import main
from fairseq_posenc.generated import GENERATED_TASKS
from fairseq_posenc.generated.lengths import read_lengths
from fairseq_posenc.generated.registry import ANSWER, GeneratedTask
from fairseq_posenc.generated.settings import Settings, read_settings
from fairseq_posenc.generated.splits import split
from fairseq_posenc.generated.writing import read_written, write_task

SMALL = Settings("copy", "language_modeling", (1, 2, 3, 4), (2, 4, 6), 400, 10, 20, 1)


def inputs(samples):
    return [tuple(given) for given, _ in samples]


def test_no_input_of_a_test_is_in_the_training_data():
    for name, task in GENERATED_TASKS.items():
        lengths = tuple(task.least + task.step * more for more in range(4))
        settings = SMALL._replace(task=name, lengths=lengths, test_lengths=lengths[::3])
        found = split(task, settings)
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
            found = split(task, settings)
            assert found.valid and found.test[length] and len(found.train) == 8


def test_lengths_of_a_training_are_equally_frequent():
    found = split(GENERATED_TASKS["copy"], SMALL._replace(samples=402))
    sizes = [len(given) for given, _ in found.train]
    counts = [sizes.count(length) for length in SMALL.lengths]
    assert sum(counts) == 402 and max(counts) - min(counts) <= 1
    assert found.shared == []
    assert split(GENERATED_TASKS["parity"], SMALL._replace(task="parity")).shared == [1, 2]


def test_a_task_with_one_input_of_a_length_ends():
    task = GeneratedTask("one", "", "", "", ("a",), lambda length, random: ("a" * length, "a"))
    assert split(task, SMALL).shared == [1, 2, 3, 4]


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
    expected = split(GENERATED_TASKS["copy"], SMALL)
    lines = [[*given, ANSWER, *answer] for given, answer in expected.test[6]]
    assert read(tmp_path, "length6", dictionary) == lines
    assert written.samples["length6"] == len(lines) and written.longest == (6 + 1 + 6 + 1,)
    assert read_written(str(tmp_path)) == written


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
    assert written.longest == (6 + 1 + 6 + 1 + 1, 7 + 1)


@pytest.mark.parametrize(
    "text, lengths",
    [("1-3,8", (1, 2, 3, 8)), ("1-6:2,5", (1, 3, 5)), (" 7 ,2", (2, 7)), ("3-3", (3,))],
)
def test_lengths_are_read(text, lengths):
    assert read_lengths(text) == lengths


@pytest.mark.parametrize("text", ["", "a", "0", "0-3", "5-3", "1-", "-1", "1-9:0", "9999999", "²"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(ValueError, match="expected lengths from 1 to 100,000"):
        read_lengths(text)


def test_settings_of_a_plan():
    one, two = read_settings(
        {
            "tasks": {"copy": None, "recall": {"lengths": "8-12", "test_lengths": [10, "20-24:4"]}},
            "lengths": "1-5", "family": "masked_lm", "seed": 3, "test_samples": 7,
        }
    )  # fmt: skip
    assert (one.task, one.lengths, one.family, one.seed) == (
        "copy",
        (1, 2, 3, 4, 5),
        "masked_lm",
        3,
    )
    assert (two.lengths, two.test_lengths, two.test_samples) == (
        (8, 9, 10, 11, 12),
        (10, 20, 24),
        7,
    )
    for wrong, said in (
        ({}, "tasks: missing"),
        ({"tasks": []}, "tasks: .*expected"),
        ({"tasks": ["copy"], "samples": -1}, "samples: -1: expected a whole number above 0"),
        ({"tasks": ["copy"], "lengths": 0}, "lengths: 0: expected lengths"),
        ({"tasks": {"copy": {"sed": 1}}}, "copy: sed: unknown key"),
        ({"tasks": ["copy"], "family": "lm"}, "family: lm: unknown"),
    ):
        with pytest.raises(ValueError, match=said):
            read_settings(wrong)


def test_settings_that_make_no_sense_are_refused():
    for changes, said in (
        ({"task": "cpy"}, "generate-task cpy: must be copy or"),
        ({"samples": 3}, "--samples 3: must be at least 4, one for each"),
        ({"test_samples": 0}, "--test-samples 0: must be at least 1"),
    ):
        with pytest.raises(UsageError, match=said):
            SMALL._replace(**changes).check()
    SMALL.check()


def test_the_command_writes_and_says_what(tmp_path, capsys):
    words = ["generate-task", "parity", str(tmp_path / "p"), "--lengths", "1-5"]
    assert main([*words, "--test-lengths", "2,9", "--samples", "60"]) == 0
    said = capsys.readouterr().out
    assert "train 60, valid" in said and "length9 200 samples of at most 12 symbols" in said
    assert "the test inputs of length 1, 2" in said
    with pytest.raises(UsageError, match="exists already"):
        main(words)


@pytest.mark.parametrize("name", sorted(GENERATED_TASKS))
def test_every_task_can_be_written_without_naming_its_lengths(name, tmp_path):
    words = ["generate-task", name, str(tmp_path / "data"), "--samples", "12"]
    assert main([*words, "--valid-samples", "1", "--test-samples", "1"]) == 0
    task = GENERATED_TASKS[name]
    written = read_written(str(tmp_path / "data"))
    assert written.samples["train"] == 12
    assert {f"length{n}" for n in (5, 10, 15, 20, 30, 40) if task.among((n,))} <= set(
        written.samples
    )
