"""Reports on languages without spaces, and samples of translations."""

import pytest
from support.made_up_studies import MEASURES, make, written

from fairseq_posenc.study.report import translations
from fairseq_posenc.study.report.document import Output, Report, Sample, Section
from fairseq_posenc.study.report.render import to_html, to_markdown

pytest_plugins = ["support.made_up_studies"]
for package in ("matplotlib", "statsmodels", "sacrebleu", "jinja2"):
    pytest.importorskip(package, reason="an extra: study")

CHINESE = [f"{'狗' * (3 + n)}在公园里。" for n in range(12)]


@pytest.mark.parametrize(
    "output, reference, marked, missing",
    [
        ("the big dog runs", "the dog runs fast", ["big"], 1),
        ("一只大狗在跑。", "一只狗在跑。", ["大"], 0),
        ("我用 fairseq 翻译", "我们用 fairseq 翻译", [], 1),
        ("これは猫です", "これは犬です", ["猫"], 0),
        ("same  words", "same words", [], 0),
    ],
)
def test_what_differs_from_the_reference_is_marked(output, reference, marked, missing):
    pieces = translations.mark(output, reference)
    signs = [piece for piece in pieces if piece.text == translations.MISSING]
    assert [piece.text for piece in pieces if piece.marked and piece not in signs] == marked
    assert len(signs) == missing
    text = "".join(piece.text for piece in pieces if piece not in signs)
    assert "".join(text.split()) == "".join(output.split())


def test_marks_add_no_spaces_between_characters():
    output = Output(["a"], translations.mark("一只大狗。", "一只狗！"))
    report = Report("x", [], [Section("Samples", [Sample("1", [], [output])])])
    assert "一只<mark>大</mark>狗<mark>。</mark></dd>" in to_html(report)
    assert "一只<b>大</b>狗<b>。</b> |" in to_markdown(report)


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
    assert "Quality by sentence length" not in markdown and "## Samples" in markdown


def test_the_contested_samples_are_not_said_to_be_of_all(undrawn, tmp_path, monkeypatch):
    monkeypatch.setattr(translations, "CONSIDERED", 4)
    markdown = report_on(CHINESE, tmp_path)
    assert "then, of one sentence in 3, those whose chrF differs the most" in markdown
