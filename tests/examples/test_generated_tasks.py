"""Generated tasks: outputs against independent implementations, and data without leaks."""

import re
from argparse import ArgumentTypeError
from functools import reduce
from random import Random

import pytest
from fairseq.data import Dictionary, data_utils
from support.commands import ROOT, Command
from support.made_up_tasks import registry, splits, writing
from support.own_extensions import files

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import digest_of_file

pytestmark = pytest.mark.formulas

ANSWER, FAMILIES = registry.ANSWER, registry.FAMILIES
GENERATED_TASKS = registry.GENERATED_TASKS
Settings, split, write_task = splits.Settings, splits.split, writing.write_task
SMALL = Settings("copy", "language_modeling", (1, 2, 3, 4), (2, 4, 6), 400, 10, 20, 1)
register_generated_task = registry.register_generated_task

#: The number of samples of each length with which a task is tested.
SAMPLES = 30


def number(symbols):
    return int("".join(symbols))


def sum_of(symbols, base=10):
    return sum(int(part, base) for part in "".join(symbols).rstrip("=").split("+"))


def product_of(symbols):
    one, two = "".join(symbols).rstrip("=").split("*")
    return int(one) * int(two)


def turned(symbols):
    """Reverse the digits of each number in an arithmetic formula."""
    return re.sub(r"\d+", lambda found: found.group()[::-1], "".join(symbols))


def left_by(symbols):
    """The bits on a stack after all actions, from the top down."""
    left = ""
    for symbol in symbols:
        left = left[:-1] if symbol == "pop" else left + symbol[-1]
    return list(reversed(left))


def missing(symbols):
    half = len(symbols) // 2
    one, two = symbols[:half], symbols[half:]
    return [next(b if a == "_" else a for a, b in zip(one, two) if a != b)]


def scan(words):
    """The actions of a SCAN command, by string rules for one phrase at a time."""
    parts = re.split(r" (and|after) ", " ".join(words))
    done = phrase(parts[0])
    for link, part in zip(parts[1::2], parts[2::2]):
        done = done + phrase(part) if link == "and" else phrase(part) + done
    return done


def phrase(text):
    first, *rest = text.split()
    action = [] if first == "turn" else [first.upper()]
    count = {"twice": 2, "thrice": 3}.get(text.split()[-1], 1)
    turn = [word[0].upper() + "TURN" for word in rest if word in ("left", "right")]
    if "around" in rest:
        return 4 * count * (turn + action)
    return count * ((1 + ("opposite" in rest)) * turn + action)


def listops(symbols):
    text = " ".join(symbols)
    values = {
        "MAX": max,
        "MIN": min,
        "MED": lambda digits: sorted(digits)[(len(digits) - 1) // 2],
        "SM": lambda digits: reduce(lambda a, b: (a + b) % 10, digits),
    }
    inner = re.compile(r"\[(\w+)((?: \d)+) \]")
    while inner.search(text):
        text = inner.sub(
            lambda found: str(values[found.group(1)](list(map(int, found.group(2).split())))), text
        )
    return [text]


def recalled(symbols):
    at = symbols.index("?")
    return [symbols[symbols.index(key) + 1] for key in symbols[at + 1 :]]


def parity(count):
    return ["odd" if count % 2 else "even"]


#: For each task, a function that computes the output from the input.
OUTPUTS = {
    "copy": list,
    "copy_repeats": list,
    "copy_unique": list,
    "reverse": lambda given: list(reversed(given)),
    "sort": lambda given: [d for digit in "0123456789" for d in given if d == digit],
    "duplicate": lambda given: [*given, *given],
    "missing_duplicate": missing,
    "odds_first": lambda given: [given[i] for odd in (0, 1) for i in range(odd, len(given), 2)],
    "stack": left_by,
    "addition": lambda given: list(str(sum_of(given))),
    "addition_reversed": lambda given: list(str(sum_of(turned(given)))[::-1]),
    "multiplication": lambda given: list(str(product_of(given))),
    "multiplication_reversed": lambda given: list(str(product_of(turned(given)))[::-1]),
    "binary_addition": lambda given: list(bin(sum_of(given, base=2))[2:]),
    "parity": lambda given: parity(sum(map(int, given))),
    "counting": lambda given: list(str(sum(map(int, given)))),
    "even_pairs": lambda given: parity(given[0] != given[-1]),
    "cycle_navigation": lambda given: [str((given.count("right") - given.count("left")) % 5)],
    "modular_arithmetic": lambda given: [str(eval("".join(given)) % 5)],
    "scan": scan,
    "listops": listops,
    "recall": recalled,
    "passkey": lambda given: given[given.index("key") + 1 : given.index("key") + 5],
}


def lengths_of(task):
    return [task.least + task.step * more for more in (0, 1, 2, 5, 11, 24)]


@pytest.mark.parametrize("name", sorted(GENERATED_TASKS))
def test_outputs_follow_from_inputs_and_the_seed(name):
    task = GENERATED_TASKS[name]
    for length in lengths_of(task):
        draw = Random(length)
        for _ in range(SAMPLES):
            given, answer = task.sample(length, draw)
            assert answer == OUTPUTS[name](given), given
            assert {*given, *answer} <= {*task.symbols}
    short, long, again = (
        [task.sample(length, Random(seed))[0] for seed in range(SAMPLES)]
        for length in (task.least, *[task.least + 20 * task.step] * 2)
    )
    assert max(map(len, short)) < min(map(len, long))
    assert again == long and len(set(map(tuple, long))) > SAMPLES // 2
    assert {*task.families} <= {*FAMILIES} and task.paper and task.summary and task.unit


def test_a_task_with_impossible_symbols_or_a_name_that_is_taken_is_refused():
    about = {"paper": "", "summary": "", "unit": ""}
    for symbol in (ANSWER, "<pad>", "<mask>", "a b", ""):
        with pytest.raises(UsageError, match="has no white space"):
            register_generated_task("own", symbols=["a", symbol], **about)
    with pytest.raises(UsageError, match="copy: registered twice"):
        register_generated_task("copy", symbols="a", **about)(lambda length, random: ("a", "a"))


# --- data


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


def test_seeds_and_settings_decide(tmp_path):
    """The methods of random.Random that tasks use give the same numbers from Python 3.8 on."""
    sample = GENERATED_TASKS["copy"].sample(12, Random("copy 12 train 1"))[0]
    assert "".join(sample) == "dabgefahagaa"

    def digest(name, **changes):
        folder = tmp_path / name
        folder.mkdir()
        write_task(SMALL._replace(**changes), str(folder))
        return digest_of_file(folder / "train.bin")

    first = digest("a")
    assert digest("b") == first
    assert digest("c", test_lengths=(2, 4, 8)) == first  # other tests, but the same training data
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


def test_lengths_are_read():
    texts = ("1-3,8", "1-6:2,5", " 7 ,2", "3-3")
    assert [*map(writing.read_lengths, texts)] == [(1, 2, 3, 8), (1, 3, 5), (2, 7), (3,)]


@pytest.mark.parametrize("text", ["", "a", "0", "0-3", "5-3", "1-", "-1", "1-9:0", "9999999", "²"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="expected lengths from 1 to 100,000"):
        writing.read_lengths(text)


@pytest.mark.parametrize("name", sorted(GENERATED_TASKS))
def test_every_task_can_be_written_without_naming_its_lengths(name, tmp_path, capsys):
    words = [name, str(tmp_path / "data"), "--samples", "12"]
    writing.main([*words, "--valid-samples", "1", "--test-samples", "1"])
    said = capsys.readouterr().out
    assert "train 12, " in said
    lengths = [n for n in (5, 10, 15, 20, 30, 40) if GENERATED_TASKS[name].among((n,))]
    assert all(f"length{n} 1" in said for n in lengths)


def test_a_task_of_ones_own_is_written(tmp_path, monkeypatch):
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "__init__.py").write_text(files()["my_tasks/__init__.py"])
    monkeypatch.chdir(tmp_path)
    program = str(ROOT / "examples" / "generated_tasks" / "make.py")
    words = ["--user-dir", "my_tasks", "--test-lengths", "4,12", "--samples", "40"]
    done = Command(program, ["rotated", "data", *words, "--lengths", "2-8:2"]).finish()
    assert done.status == 0 and "length12" in done.out
