"""The numbers of README.md: each has its command, and those of studies and of a GPU their table."""

import re
from decimal import ROUND_HALF_UP, Decimal

import pytest
from support.shell_scripts import REPO, SCRIPTS, shell

README = (REPO / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?!\.?\d)")


def test_every_number_is_listed_with_a_command():
    listed = shell(SCRIPTS / "numbers.sh", "--dry-run")
    assert listed.returncode == 0, listed.stderr
    paragraphs = [text for text in README.split("\n\n") if NUMBER.search(text)]
    assert len(paragraphs) == 4
    assert all(text in listed.stdout for text in paragraphs)
    assert listed.stdout.count("\n+ ") == 1 + 3 + 1


def test_what_cannot_run_here_is_printed_and_not_run():
    listed = shell(SCRIPTS / "numbers.sh", "--only", "studies")
    assert listed.returncode == 0 and listed.stdout.count("\n+ ") == 3 and listed.stderr == ""


@pytest.mark.parametrize(
    "row, study, digits",
    [
        ("Translation", "multi30k", 1),
        ("Masked LM", "masked_lm", 2),
        ("Language model", "language_model", 1),
    ],
)
def test_the_numbers_of_studies_are_those_of_their_reports(row, study, digits):
    (cells,) = re.findall(rf"^\| \[{row}\].*?\| (.*) \|$", README, re.MULTILINE)
    report = REPO / "examples" / "study" / "results" / study / "report.md"
    means = re.findall(r"\| \**([\d.]+) ± ", report.read_text(encoding="utf-8"))
    step = Decimal(10) ** -digits
    rounded = {str(Decimal(mean).quantize(step, ROUND_HALF_UP)) for mean in means}
    said = NUMBER.findall(cells)
    assert len(said) >= 5 and set(said) <= rounded, set(said) - rounded


def test_the_numbers_of_the_gpu_are_those_of_the_page():
    (paragraph,) = [text for text in README.split("\n\n") if "one H100" in text]
    speed = (REPO / "docs" / "speed.md").read_text(encoding="utf-8")
    rows = [
        re.search(rf"^\| `{name}` \| (.*)$", speed, re.M)[1]
        for name in ("roformer_base", "learned")
    ]
    assert NUMBER.findall(paragraph) == [
        number for row in rows for number in re.findall(r"([\d.]+) \([^)]*\)", row)
    ]
