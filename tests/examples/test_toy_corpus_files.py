"""The toy corpus: the files that corpus.py writes."""

import subprocess
import sys

import pytest
from support.toy_grammar import TOY


def run_script(*arguments):
    command = [sys.executable, str(TOY / "corpus.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_have_the_sizes_asked_for_and_share_no_sentence(tmp_path):
    result = run_script(tmp_path / "a", "--train", 400, "--valid", 50, "--test", 60)
    assert (result.returncode, result.stderr) == (0, "")
    assert run_script(tmp_path / "b", "--train", 400, "--valid", 50, "--test", 60).returncode == 0
    seen = set()
    for split, size in (("train", 400), ("valid", 50), ("test", 60)):
        for language in ("en", "de"):
            file = tmp_path / "a" / f"{split}.{language}"
            assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
            lines = file.read_text(encoding="utf-8").splitlines()
            assert len(lines) == len(set(lines)) == size
            assert not seen & set(lines)
            seen |= set(lines)
    assert len(list((tmp_path / "a").iterdir())) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "0"], "--train 0: must be 1 or more"),
        (["--valid", "-3"], "--valid -3: must be 1 or more"),
    ],
)
def test_wrong_sizes_are_one_line(tmp_path, arguments, message):
    result = run_script(tmp_path / "out", *arguments)
    assert result.returncode == 1 and result.stderr == message + "\n"
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "out").write_text("mine")
    result = run_script(tmp_path / "out", "--train", "5", "--valid", "5", "--test", "5")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert (tmp_path / "out").read_text() == "mine"
