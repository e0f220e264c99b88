"""The numbers of README.md: each has its command, and those of a GPU their table."""

import re

from support.shell_scripts import REPO, SCRIPTS, shell

README = (REPO / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?!\.?\d)")


def test_every_number_is_listed_with_a_command():
    listed = shell(SCRIPTS / "numbers.sh", "--dry-run")
    assert listed.returncode == 0, listed.stderr
    paragraphs = [text for text in README.split("\n\n") if NUMBER.search(text)]
    assert len(paragraphs) == 5
    assert all(text in listed.stdout for text in paragraphs)
    assert listed.stdout.count("\n+ ") == 1 + 6 + 1


def test_what_cannot_run_here_is_printed_and_not_run():
    listed = shell(SCRIPTS / "numbers.sh", "--only", "studies")
    assert listed.returncode == 0 and listed.stdout.count("\n+ ") == 6 and listed.stderr == ""


def test_the_numbers_of_the_gpu_are_those_of_the_page():
    (paragraph,) = [text for text in README.split("\n\n") if "one H100" in text]
    speed = (REPO / "docs" / "speed.md").read_text(encoding="utf-8")
    said = NUMBER.findall(paragraph)
    assert said
    for name, numbers in (("roformer_base", said[:3]), ("learned", said[3:4]), ("stock", said[4:])):
        cell = re.search(rf"^\| `?{name}\b[^|]*\| ([^|]*) \|", speed, re.M)[1]
        assert numbers == NUMBER.findall(cell)[: len(numbers)]
