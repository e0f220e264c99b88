"""Reports of made-up studies."""

import csv
import re
from html.parser import HTMLParser

import pytest
from scipy.stats import ttest_rel
from support.made_up_studies import MEASURES, SOURCE, SYSTEMS, make, undraw, written

from fairseq_posenc.study import sentences, statistics
from fairseq_posenc.study.report import curves, document, figures, overview, sentence_tests, to_html
from fairseq_posenc.study.report.document import Report, Section

pytest_plugins = ["support.made_up_studies"]
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study of three seeds, its page and its Markdown; the figures are left empty."""
    folder = make(
        tmp_path_factory.mktemp("study"), (1, 2, 3), {("t5", 3)}, {("stock", 3)}
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "to_svg", undraw)
        patch.setattr(sentences, "RESAMPLES", 50)
        return (folder, *written(folder))


def test_the_page_is_whole_and_needs_no_network(whole):
    _, page, _ = whole
    text = " ".join(Checked(page).texts)
    for title in (
        "What was compared", "Results", "Learning curves", "Quality by sentence length",
        "Extrapolation", "Speed and memory", "Failed and missing runs", "To repeat it",
    ):  # fmt: skip
        assert title in text
    assert "<made & up>" in text
    assert "out of <memory>" in text and "nrefs:1|case:mixed|tok:13a" in text
    assert "url(http" not in page and "@import" not in page


def test_the_table_of_runs_is_enough_to_recompute_the_tests(whole):
    """The p-value of a pair, by SciPy from the file alone, is that of the report."""
    folder, _, text = whole
    rows = list(csv.DictReader((folder / "report/results.csv").open(encoding="utf-8")))
    assert [row["status"] for row in rows].count("failed") == 1
    assert rows[0]["flags"] == "--arch tiny --position-encoding stock"
    assert rows[0]["perplexity_64"] == "7.0" and rows[0]["seconds_train"] == "12"
    bleu = {
        system: [float(row["bleu"]) for row in rows if row["system"] == system and row["bleu"]]
        for system in SYSTEMS
    }
    p = document.p_value(ttest_rel(bleu["t5"], bleu["stock"]).pvalue)
    (shown,) = [line for line in text.splitlines() if re.match(r"\| t5 \| \+", line)][:1]
    assert p in shown


def test_the_table_for_latex_has_the_cells_of_the_markdown(whole):
    folder, _, markdown = whole
    latex = (folder / "report/results.tex").read_text(encoding="utf-8")
    top, body = latex.split(r"\midrule")
    assert r"\begin{tabular}{lrlrlrl}" in top and r"BLEU $\uparrow$ & group &" in top
    rows = body.split(r"\bottomrule")[0].strip().split("\n")
    assert [row.split(" & ")[0] for row in rows] == ["rotary", "t5", "stock"]
    assert all(row.count(" & ") == 6 and row.endswith(r" \\") for row in rows)
    (best,) = re.findall(r"\\textbf\{(9[\d.]+) \$\\pm\$ [\d.]+\}", rows[0])
    assert f"**{best} ± " in markdown
    assert "2 of 3 seeds" in rows[1]


LOSSES = {
    "stock": {"--lr 1e-3": 5.0, "--lr 2e-3": 4.0, "--lr 4e-3": 6.0},
    "rotary": {"--lr 1e-3": 3.0, "--lr 2e-3": 4.0, "--lr 4e-3": 6.0},
    "t5": {"--lr 2e-3": 4.5},  # the others diverged
}


def test_the_search_is_shown_and_a_best_value_at_an_edge_is_named(undrawn, tmp_path):
    search = {"--lr": ["1e-3", "2e-3", "4e-3"]}
    folder = make(tmp_path / "study", tried=LOSSES, search=search)
    _, markdown = written(folder)
    assert "| t5 | – | 4.500 | – | `2e-3` |" in markdown
    assert "![Validation loss by \\-\\-lr" in markdown or "figures/search.svg" in markdown
    (told,) = re.findall(r"The best --lr lies at an edge.*?“Search”", markdown)
    assert "rotary (1e-3)" in told and "stock" not in told and "t5" not in told


def test_a_search_with_several_seeds_shows_how_they_agree(undrawn, tmp_path):
    losses = {"stock": {"--lr 1e-3": [5.0, 5.2], "--lr 2e-3": [4.0, 8.0]}, "t5": {}}
    search = {"--lr": ["1e-3", "2e-3"]}
    folder = make(tmp_path / "study", tried=losses, search=search, search_seeds=2)
    _, markdown = written(folder)
    assert "mean ± standard deviation over the first 2 seeds" in markdown
    assert "| stock | 5.100 ± 0.141 | 6.000 ± 2.828 | `1e-3` |" in markdown
    assert "| t5 | – | – |  |" in markdown


def test_a_value_that_other_seeds_do_not_bear_out_is_named(undrawn, tmp_path):
    losses = {"stock": (4.0, 7.0), "rotary": (3.0, 3.2), "t5": (4.5, 9.0)}

    def change(result):
        result["scores"]["loss"] = losses[result["system"]][result["seed"] - 1]

    search = {"--lr": ["1e-3", "2e-3", "4e-3"]}
    folder = make(tmp_path / "study", tried=LOSSES, search=search, change=change)
    _, markdown = written(folder)
    (told,) = re.findall(r"The mean validation loss of (.*?) over all seeds", markdown)
    assert told == "stock"


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


def test_figures_say_what_their_marks_are_and_follow_light_and_dark():
    scores = {"a": {1: 3.0, 2: 3.1}, "b": {1: 2.0, 2: 2.2}, "far": {1: 200.0, 2: 201.0}}
    compared = statistics.compare({**scores, **{f"{n}": scores["a"] for n in range(5)}}, "higher")
    points = {name: list(scores.get(name, scores["a"]).values()) for name in compared.order}
    line = figures.curve([{1: 2.0, 2: 3.0}, {1: 2.5, 2: 2.0}])
    parts = [
        figures.dot_plot("dots", "<dots>", compared, points, "a", "score"),
        figures.small_multiples("curves", "2 > 1", {"a": line, "b": line}, "a", ("x", "y")),
    ]
    page = to_html(Report("title", [], [Section("Figures", parts)]))
    Checked(page)
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 4
    for svg in drawn:
        assert "currentColor" in svg and "#0072b2" not in svg.lower() and "#ffffff" not in svg
    for mark in ("mean", "each seed", "95 % interval of the mean", "baseline"):
        assert all(f">{mark}</text>" in svg for svg in (parts[0].svg, parts[0].narrow))
    for part in parts:  # as a file of its own
        style = figures.on_any_page(part.svg).partition("scheme: dark){")[2].partition("</style>")
        used = re.findall(r"(?:fill|stroke): #\w+", style[2])
        assert used and all(f'"{color}"' in style[0] for color in used)


def test_long_names_leave_the_dots_their_width():
    baseline = "a-baseline-of-a-long-name"
    scores = {baseline: {1: 3.0, 2: 3.1}, "b": {1: 2.0, 2: 2.2}}
    compared = statistics.compare(scores, "higher")
    points = {name: list(seeds.values()) for name, seeds in scores.items()}
    drawn = figures.dot_plot("dots", "dots", compared, points, baseline, "score").svg
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn).group(1))
    frame = drawn.partition('<g id="patch_2">')[2].partition("</g>")[0]
    assert max(float(x) for x in re.findall(r"L ([\d.]+)", frame)) > 0.95 * width


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
    assert "Worse than it: t5 and stock (for the pair alone: all of them)." in markdown
    assert "Perplexity (lower is better): rotary has the best mean" in markdown
    assert re.search(
        r"\| rotary \| \*\*90\.\d+ ± .*?\*\* \| \*\*5\.\d+ ±", markdown.replace(" | a |", " |")
    )


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


def test_only_flags_that_differ_are_shown():
    flags = {"a": {"--arch": "x", "--lr": 1}, "b": {"--arch": "x", "--lr": 2}, "c": {"--arch": "x"}}
    assert overview.differing(flags) == {"a": {"--lr": 1}, "b": {"--lr": 2}, "c": {}}


def test_each_sentence_is_in_one_bucket():
    found = curves.buckets(SOURCE + ["one word"] * 20)
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


@pytest.mark.parametrize(
    "value, like, text",
    [(34.2164, None, "34.22"), (-0.5, 34.0, "−0.50"), (123456.7, None, "123457"),
     (0.0, None, "0.0000"), (9.9999, None, "10.000"), (float("inf"), None, "∞")],
)  # fmt: skip
def test_numbers(value, like, text):
    assert document.number(value, like) == text


def test_commands_of_seeds_that_differ_only_in_their_seed_stand_once(whole):
    from fairseq_posenc.study.results import load_results

    ((title, text),) = overview.commands_of(load_results(whole[0]).of("rotary"))
    assert text == "fairseq-train data --seed SEED --save-dir runs/RUN"
    assert "3 in rotary-seed3-01234567" in title
