"""Reports on languages without spaces."""

import pytest
from support.made_up_studies import MEASURES, make, written

pytest_plugins = ["support.made_up_studies"]
for package in ("matplotlib", "statsmodels", "sacrebleu", "jinja2"):
    pytest.importorskip(package, reason="an extra: study")

CHINESE = [f"{'狗' * (3 + n)}在公园里。" for n in range(12)]


def report_on(sources, tmp_path):
    folder = make(tmp_path / "study", measures={"bleu": MEASURES["bleu"]})
    for path in folder.glob("runs/*/sources.txt"):
        path.write_text("\n".join(sources) + "\n", encoding="utf-8")
    return written(folder)[1]


def test_sentences_without_spaces_are_measured_in_characters(undrawn, tmp_path):
    markdown = report_on(CHINESE, tmp_path)
    assert "BLEU by the number of characters of the source" in markdown
    header = next(line for line in markdown.splitlines() if "–19 characters" in line)
    assert header.count("characters") == 5


def test_sentences_of_one_length_are_not_divided(undrawn, tmp_path):
    markdown = report_on(["three words here"] * 12, tmp_path)
    assert "Quality by sentence length" not in markdown
