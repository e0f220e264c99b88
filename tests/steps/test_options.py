"""The options of a script are what the comment at its head says."""

import subprocess

import pytest

from fairseq_posenc.steps.options import Mistake, Option, assignments, check_value, declaration_of

HEAD = """#!/usr/bin/env bash
# Title.
#
#   go.sh ARCH DATA... --lang LANG [options] [-- flags for fairseq-train]
#
# It trains.
#
#   --lang LANG           language
#   --updates N           length of the
#                         training (100)
#   --seeds "N ..."       seeds (1 2)
#   --ratio X             of lengths (1.5)
#   --name NAME           of the run (default: ARCH)
#   --vocabulary joint|separate|none  dictionaries (joint)
#   --cpu                 without GPU (slow)
#   options of common.sh
#   --help                this text
#
# --other is no option.

set -euo pipefail
echo done
"""
COMMON = """# shellcheck shell=bash
# Functions:
#
#     step NAME       run it
#
#   --gpus N              GPUs
#   --dry-run             print

true
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "common.sh").write_text(COMMON)
    (tmp_path / "go.sh").write_text(HEAD)
    return str(tmp_path / "go.sh")


def values(script, *words):
    """The variables that a script has then, printed by bash."""
    names = "ARCH DATA[*] OPTION_LANG UPDATES SEEDS RATIO NAME VOCABULARY CPU GPUS DRY_RUN EXTRA[*]"
    show = "".join(f'printf "%s|" "${{{name}}}"\n' for name in names.split())
    code = f"{assignments(declaration_of(script), words)}\n{show}"
    printed = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, check=True)
    return printed.stdout.split("|")[:-1]


def test_each_argument_and_option_is_a_variable(script):
    few = ["a", "d", "--lang", "de"]
    assert values(script, *few) == ["a", "d", "de", "100", "1 2", "1.5", *" joint 0  0 ".split(" ")]
    more = ["--cpu", "--gpus", "2", "e $x", "--name", "n-1.2+b", "--", "--lr", "'1 2'", "--help"]
    assert values(script, *few, *more) == [
        *("a", "d e $x", "de", "100", "1 2", "1.5", "n-1.2+b", "joint", "1", "2", "0"),
        "--lr '1 2' --help",
    ]


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "give ARCH DATA; see --help"),
        ("a", "give DATA; see --help"),
        ("a d", "give --lang; see --help"),
        ("a d --lang", "--lang needs a value; see --help"),
        ("a d --language de", "--language: unknown option; see --help (flags for fairseq-train go"),
        ("a d --other", "--other: unknown option"),
        ("a d --updates 0", "--updates 0: expected a whole number above 0"),
        ("a d --seeds 1,2", "--seeds 1,2: expected a whole number above 0"),
        ("a d --ratio one", "--ratio one: expected a number such as 1.5 or 2e-5"),
        ("a d --vocabulary x", "--vocabulary x: expected joint, separate or none"),
        *((f"a d --name {name}", f"--name {name}: expected") for name in ".. .x a/b /x -x".split()),
    ],
)
def test_a_mistake_is_one_line(script, words, message):
    with pytest.raises(Mistake) as caught:
        assignments(declaration_of(script), words.split())
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_empty_value_and_words_passed_on_to_nobody_are_refused(script):
    declared = declaration_of(script)
    with pytest.raises(Mistake, match="--name '': is empty"):
        assignments(declared, ["a", "d", "--name", ""])
    with pytest.raises(Mistake, match="--: unknown option"):
        assignments(declared._replace(passed=""), ["a", "d", "--", "--lr"])
    with pytest.raises(Mistake, match="e: unexpected argument; see --help"):
        assignments(declared._replace(arguments=("ARCH", "[DATA]"), passed=""), ["a", "d", "e"])


def test_help_is_the_comment_with_the_options_of_others(script):
    text = declaration_of(script).text
    code = assignments(declaration_of(script), ["--cpu", "--help"])
    printed = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, check=True)
    assert printed.stdout == text + "\n"
    assert text.startswith("Title.\n\n  go.sh ARCH") and text.endswith("--other is no option.")
    assert "  --gpus N              GPUs\n  --dry-run" in text and "run it" not in text


def test_options_of_another_script_are_chosen_and_not_repeated(tmp_path):
    (tmp_path / "common.sh").write_text(COMMON)
    (tmp_path / "middle.sh").write_text(
        "# M.\n#\n#   --seed N    seed\n#   options of common.sh\n\n"
    )
    head = "# T.\n#\n#   t.sh\n#\n#   --gpus N    mine\n#   options of middle.sh --gpus --seed\n\n"
    (tmp_path / "t.sh").write_text("#!/usr/bin/env bash\n" + head)
    declared = declaration_of(str(tmp_path / "t.sh"))
    assert list(declared.options) == ["--gpus", "--seed"]
    assert "mine" in declared.text and "GPUs" not in declared.text


@pytest.mark.parametrize(
    "kind, right, wrong",
    [("N,N", ["7", "20,60"], ["", "0,1", "1,", "1;2"]), ("NxNxN", ["5x2x9"], ["5x2", "5x0x1"])],
)
def test_several_numbers_in_one_value(kind, right, wrong):
    for value in right:
        check_value(Option("--it", kind, ""), value)
    for value in wrong:
        with pytest.raises(Mistake, match="--it"):
            check_value(Option("--it", kind, ""), value)
