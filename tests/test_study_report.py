"""Reports of made-up studies."""

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import yaml

from fairseq_posenc.analysis import positions_figure
from fairseq_posenc.errors import UsageError
from fairseq_posenc.study import report, sentences, statistics
from fairseq_posenc.study.report import (
    figures,
    overview,
    positions,
    render,
    reproduction,
    sentence_tests,
    translations,
    words,
)
from fairseq_posenc.study.report.document import Report, Section
from fairseq_posenc.study.report.memory import Memory

pyplot = pytest.importorskip("matplotlib.pyplot", reason="an extra: study")
for package in ("statsmodels", "sacrebleu", "jinja2"):
    pytest.importorskip(package, reason="an extra: study")

SYSTEMS = ("stock", "rotary", "t5")
REFERENCE = [f"a <b>man</b> & {n} dogs | run in the *park* ." for n in range(12)]
SOURCE = [" ".join(["word"] * (3 + n)) for n in range(12)]
MEASURES = {
    "bleu": {"better": "higher", "label": "BLEU"},
    "perplexity": {"better": "lower", "label": "perplexity"},
    "cola_accuracy": {"better": "higher", "label": "CoLA accuracy", "unit": "%"},
}
EMPTY = {"link", "meta", "br"}


class Checked(HTMLParser):
    """Reads HTML strictly: what is opened must be closed, and nothing is fetched."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.ids = [], [], []
        self.feed(text)
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        for name in ("src", "href", "xlink:href"):
            assert re.match("#|data:", found.get(name) or "#"), found
        assert tag != "script"
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def make(folder, seeds=(1, 2), without=(), failed=(), measures=MEASURES):
    """Write a study: rotary has the best scores, stock the worst."""
    folder.mkdir(exist_ok=True)
    plan = {"name": "<made & up>", "systems": dict.fromkeys(SYSTEMS), "seeds": list(seeds)}
    plan["measures"] = measures
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    for place, system in enumerate(("rotary", "t5", "stock")):
        for seed in seeds:
            if (system, seed) not in without:
                write_run(folder, place, system, seed, (system, seed) in failed)
    return folder


def write_run(folder, place, system, seed, failed):
    run = folder / "runs" / f"{system}-seed{seed}-01234567"
    run.mkdir(parents=True)
    result = {
        "system": system, "seed": seed, "digest": "0123456789", "status": "done",
        "flags": {"--arch": "tiny", "--position-encoding": system}, "base": ["--lr", "1"],
        "commands": [f"fairseq-train data --seed {seed} --save-dir runs/{run.name}"],
        "environment": {"torch": "2.13", "cpu": {"threads": 1}},
    }  # fmt: skip
    if failed:
        result.update(status="failed", error="out of <memory>")
        (run / "result.json").write_text(json.dumps(result))
        return
    kept = 12 - 4 * place
    lines = [line if i < kept else "<i>no" for i, line in enumerate(REFERENCE)]
    texts = {"hypotheses": lines, "references": REFERENCE, "sources": SOURCE}
    for name, text in texts.items():
        (run / f"{name}.txt").write_text("\n".join(text) + "\n")
    (run / "cola.tsv").write_text("".join(f"1\t{int(i < kept)}\n" for i in range(12)))
    noise = 0.01 * ((3 * seed + place) % 4)
    result.update(
        parameters=1000 + place, updates=10, tokens=1000, peak_memory_mb=50,
        seconds={"train": 10 + place, "decode": 1},
        scores={"bleu": 90 - place + noise, "perplexity": 5 + place + noise,
                "cola_accuracy": 100 * kept / 12},
        signatures={"bleu": "nrefs:1|case:mixed|tok:13a"},
        curve=[{"update": n, "train_loss": 9 - n, "valid_loss": 9 - n + place} for n in (1, 2, 3)],
        extrapolation={"64": 5 + place, "128": 7 + noise},
        files={**{name: f"{name}.txt" for name in texts}, "answers": {"cola": "cola.tsv"}},
    )  # fmt: skip
    (run / "result.json").write_text(json.dumps(result))


def written(folder):
    pages = report.write_report(folder)
    return tuple(page.read_text(encoding="utf-8") for page in pages)


def undraw(figure):
    """Stands for to_svg, which takes half a second for each figure."""
    pyplot.close(figure)
    return '<svg width="1" height="1"></svg>'


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(figures, "to_svg", undraw)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study of three seeds, its page and its Markdown; the figures are left empty."""
    folder = make(
        tmp_path_factory.mktemp("study"), (1, 2, 3), {("t5", 3)}, {("stock", 3)}
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "to_svg", undraw)
        patch.setattr(sentences, "RESAMPLES", 50)
        patch.setattr(sentence_tests, "RESAMPLES", 50)
        return (folder, *written(folder))


def test_the_page_is_whole_and_needs_no_network(whole):
    _, page, _ = whole
    text = " ".join(Checked(page).texts)
    for title in (
        "What was compared", "Results", "Learning curves", "Quality by sentence length",
        "Extrapolation", "Speed and memory", "Samples", "Failed and missing runs", "To repeat it",
    ):  # fmt: skip
        assert title in text
    assert "<made & up>" in text and "<b>man</b>" in text and "<i>no" in text
    assert "out of <memory>" in text and "nrefs:1|case:mixed|tok:13a" in text
    assert "url(http" not in page and "@import" not in page


def test_both_forms_have_every_system_and_what_is_absent(whole):
    _, page, markdown = whole
    for text in (page, markdown):
        assert all(system in text for system in SYSTEMS)
        assert "stock, seed 3: failed" in text and "Not run yet: t5, seed 3." in text
        assert "1 run failed" in text and "1 run is missing" in text


def test_figures_stand_beside_the_markdown(whole):
    folder, _, markdown = whole
    named = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    assert "figures/score-bleu.svg" in named and "figures/extrapolation.svg" in named
    assert {folder / "report" / name for name in named} == set(folder.glob("report/figures/*"))


def test_figures_in_the_page_follow_its_colours():
    scores = {"a": {1: 3.0, 2: 3.1}, "b": {1: 2.0, 2: 2.2}, "far": {1: 200.0, 2: 201.0}}
    compared = statistics.compare({**scores, **{f"{n}": scores["a"] for n in range(5)}}, "higher")
    points = {name: list(scores.get(name, scores["a"]).values()) for name in compared.order}
    line = figures.curve([{1: 2.0, 2: 3.0}, {1: 2.5, 2: 2.0}])
    parts = [
        figures.dot_plot("dots", "<dots>", compared, points, "a", "score"),
        figures.small_multiples("curves", "2 > 1", {"a": line, "b": line}, "a", ("x", "y")),
    ]
    page = render.to_html(Report("title", [], [Section("Figures", parts)]))
    Checked(page)
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 4
    for svg in drawn:
        assert "currentColor" in svg and "#0072b2" not in svg.lower() and "#ffffff" not in svg


def test_tables_of_the_markdown_are_complete(whole):
    _, _, markdown = whole
    tables = re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE)
    assert len(tables) > 8
    for table in tables:
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(cells) == 1, table


def test_the_best_is_named_by_the_direction_of_the_measure(whole):
    _, _, markdown = whole
    assert "BLEU (higher is better): rotary has the best mean" in markdown
    assert "Perplexity (lower is better): rotary has the best mean" in markdown
    assert re.search(
        r"\| rotary \| \*\*90\.\d+ ± .*?\*\* \| \*\*5\.\d+ ±", markdown.replace(" | a |", " |")
    )


@pytest.mark.slow
def test_another_report_says_the_same_and_repeats_no_test(whole, undrawn, monkeypatch):
    folder, _, markdown = whole
    monkeypatch.setattr(sentence_tests, "compare_translations", pytest.fail)
    monkeypatch.setattr(sentence_tests, "compare_answers", pytest.fail)
    monkeypatch.setattr(sentence_tests, "RESAMPLES", 50)
    assert written(folder)[1] == markdown


@pytest.mark.parametrize("changes", [{"seeds": (7,)}, {"without": {(s, 1) for s in SYSTEMS}}])
def test_one_seed_is_no_test(changes, undrawn, tmp_path):
    folder = make(tmp_path / "study", measures={"perplexity": MEASURES["perplexity"]}, **changes)
    _, markdown = written(folder)
    assert "cannot be told whether the systems differ or the seeds" in markdown
    assert "p (Holm)" not in markdown and "group" not in markdown


def test_nothing_has_finished(undrawn, tmp_path):
    runs = {(system, seed) for system in SYSTEMS for seed in (1, 2)}
    page, markdown = written(make(tmp_path / "study", without=runs))
    assert "6 runs are missing" in markdown and "Results" not in markdown
    Checked(page)


@pytest.mark.parametrize("systems", [SYSTEMS, ("stock",), ("stock", "t5"), ("rotary",)])
def test_systems_that_failed_with_every_seed(systems, undrawn, tmp_path):
    runs = {(system, seed) for system in systems for seed in (1, 2)}
    one = {"perplexity": MEASURES["perplexity"]}
    page, _ = written(make(tmp_path / "study", failed=runs, measures=one))
    Checked(page)
    assert f"{len(runs)} runs failed" in page and "out of &lt;memory&gt;" in page
    assert ("Results" in page) == (systems != SYSTEMS)


# --- parts


def test_positions_are_drawn_where_there_are_any(monkeypatch, tmp_path):
    def plot(checkpoint, output, *_):
        if "none" in checkpoint:
            raise positions_figure.NothingToDraw(f"{checkpoint}: has neither")
        if "stock" in checkpoint:
            raise UsageError(f"{checkpoint}: names no encoding")
        output.write_text("<svg></svg>")

    monkeypatch.setattr(positions_figure, "plot", plot)
    systems = [tmp_path / name for name in ("t5", "none", "stock")]
    for path in systems:
        path.touch()
    of = {
        path.name: [SimpleNamespace(folder=tmp_path, checkpoint=path.name, seed=1)]
        for path in systems
    }
    evidence = SimpleNamespace(systems=list(of), study=SimpleNamespace(of=of.get))
    prose, drawn, failed = positions.positions_section(evidence).parts
    assert prose.text.endswith("Neither is in none.")
    assert drawn.parts[0].svg == "<svg></svg>"
    assert failed.items == ["stock: names no encoding"]


def test_only_flags_that_differ_are_shown():
    flags = {"a": {"--arch": "x", "--lr": 1}, "b": {"--arch": "x", "--lr": 2}, "c": {"--arch": "x"}}
    assert overview.differing(flags) == {"a": {"--lr": 1}, "b": {"--lr": 2}, "c": {}}


def test_words_that_differ_from_the_reference_are_marked():
    pieces = translations.mark("the big dog runs", "the dog runs fast")
    assert [piece.text for piece in pieces if piece.marked] == ["big", translations.MISSING]
    assert " ".join(piece.text for piece in pieces[:-1]) == "the big dog runs"
    assert not any(piece.marked for piece in translations.mark("a b", "a b"))


def test_each_sentence_is_in_one_bucket():
    found = translations.buckets(SOURCE + ["one word"] * 20)
    indices = [index for _, _, chosen in found for index in chosen]
    assert sorted(indices) == list(range(32))
    assert found[0][0] == "2" and found[-1][0].endswith("14")


@pytest.mark.parametrize(
    "measure, key",
    [
        ("cola_mcc", ("cola", "mcc")),
        ("mnli_mm_accuracy", ("mnli_mm", "accuracy")),
        ("mnli_accuracy", ("mnli", "accuracy")),
        ("loss", None),
        ("cola_loss", None),
    ],
)
def test_answers_of_a_measure(measure, key):
    assert sentence_tests.answers_key(measure, ["mnli", "cola", "mnli_mm"]) == key


def test_outcomes_in_words():
    assert sentence_tests.Outcome(2, 0, 3).text == "better in 2 of 3"
    assert sentence_tests.Outcome(1, 1, 3).text == "better in 1, worse in 1 of 3"
    assert sentence_tests.Outcome(0, 0, 1).text == "in none of 1 seed"


@pytest.mark.parametrize(
    "value, like, text",
    [(34.2164, None, "34.22"), (-0.5, 34.0, "−0.50"), (123456.7, None, "123457"),
     (0.0, None, "0.0000"), (9.9999, None, "10.000"), (float("inf"), None, "∞")],
)  # fmt: skip
def test_numbers(value, like, text):
    assert words.number(value, like) == text


def test_commands_of_seeds_that_differ_only_in_their_seed_stand_once(whole):
    from fairseq_posenc.study.results import load_results

    ((title, text),) = reproduction.commands_of(load_results(whole[0]).of("rotary"))
    assert text == "fairseq-train data --seed SEED --save-dir runs/RUN"
    assert "3 in rotary-seed3-01234567" in title


def test_a_damaged_memory_is_computed_anew(tmp_path):
    path = tmp_path / "memory"
    path.write_text("{")
    memory = Memory(path)
    assert memory.get(["a", 1], lambda: 5) == 5
    memory.save()
    assert Memory(path).get(["a", 1], lambda: 6) == 5
    assert Memory(path).get(["a1"], lambda: 6) == 6
