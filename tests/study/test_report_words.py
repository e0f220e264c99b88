"""What the report of a study says in words: verdicts, warnings, and what was compared."""

import json
import math

import pytest
from support.made_up_studies import MEASURES, make, written

from fairseq_posenc.study import statistics
from fairseq_posenc.study.report import (
    document,
    figures,
    measured,
    overview,
    sentence_tests,
    to_markdown,
)
from fairseq_posenc.study.report.document import Details, Prose, Report, Section
from fairseq_posenc.study.results import Measure, load_results

pytest_plugins = ["support.made_up_studies"]
ONE = {"perplexity": MEASURES["perplexity"]}


@pytest.mark.parametrize("better, than_d", [("higher", "Worse"), ("lower", "Better")])
def test_better_and_worse_are_those_of_the_same_seeds(better, than_d):
    """b has the best seed alone, so its mean is the highest, though it is below all others."""
    scores = {name: {1: 10.0 + x, 2: 20.0 - x, 3: 30.0} for name, x in zip("acd", (0, 0.1, -0.05))}
    compared = statistics.compare({**scores, "b": {3: 29.0}}, better)
    said = document.verdict(compared, Measure("x", better, "score"), "d")
    assert f"{than_d} than the baseline, d: b (for the pair alone: none)." in said
    if better == "higher":
        assert "b has the best mean" in said and "Better than it with the same seeds: a" in said


SEEDS = (1, 2, 3)


def compared_to_c(**scores):
    """What is said of four systems with three seeds; c is the baseline, and d noise."""
    noise = {"c": (30.0, 30.2, 30.1), "d": (30.1, 30.0, 30.3)}
    by_seed = {name: dict(zip(SEEDS, found)) for name, found in {**scores, **noise}.items()}
    compared = statistics.compare(by_seed, "higher")
    return document.verdict(compared, Measure("x", "higher", "score"), "c")


def test_differences_that_rest_on_the_pooled_error_are_told_apart():
    """a is above c by about the same in every seed; b is so by 1, 2 and 3."""
    said = compared_to_c(a=(33.0, 33.2, 33.11), b=(31.0, 32.2, 33.1))
    assert "Better than the baseline, c: a and b (for the pair alone: a)." in said
    assert "Worse than it: d and c (for the pair alone: all of them)." in said
    alone = statistics.compare({"c": {1: 1.0, 2: 1.1}, "a": {1: 2.0, 2: 2.11}}, "higher")
    said = document.verdict(alone, Measure("x", "higher", "score"), "c")
    assert "Worse than it: c." in said  # there is nothing else in the pooled error


def test_scores_that_are_shown_alike_share_the_best_place():
    said = compared_to_c(a=(32.0, 32.2, 32.1), b=(32.1, 32.0, 32.2))
    assert "a and b share the best mean, 32.10 (3 seeds)" in said
    assert "Not separable from a with 3 seeds: b." in said and "Worse than a: d and c" in said


def test_sizes_that_differ_are_named_before_the_results(undrawn, tmp_path):
    def change(result):
        result["parameters"] = {"stock": 1000, "rotary": 1010, "t5": 1577}[result["system"]]

    _, markdown = written(make(tmp_path / "study", measures=ONE, change=change))
    assert "t5 has +57.7 % of parameters against the baseline, stock" in markdown
    assert "not the same size" not in written(make(tmp_path / "other", measures=ONE))[1]


def diverge(result):
    """rotary's third seed has no score, and t5's second one an infinite one."""
    values = {("rotary", 3): math.nan, ("t5", 2): math.inf}
    key = result["system"], result["seed"]
    result["scores"]["perplexity"] = values.get(key, result["scores"]["perplexity"])


def test_scores_that_are_no_finite_numbers_are_named_and_left_out(undrawn, tmp_path):
    folder = make(tmp_path / "study", (1, 2, 3), measures=ONE, change=diverge)
    _, markdown = written(folder)
    assert "No finite perplexity: rotary, seed 3; t5, seed 2." in markdown
    row = next(line for line in markdown.splitlines() if line.startswith("| rotary | **5"))
    assert "2 of 3 seeds" in row
    assert "nan" not in markdown and "not a number" not in markdown and "∞" not in markdown
    assert "compare letters and differences" in markdown


def test_different_versions_are_named(undrawn, tmp_path):
    def change(result):
        result["environment"]["torch"] += f".{int(result['seed'] == 2)}"

    _, markdown = written(make(tmp_path / "study", measures=ONE, change=change))
    assert "different versions of torch, 2.13.0 and 2.13.1, which" in markdown
    assert "versions of" not in written(make(tmp_path / "other", measures=ONE))[1]


def test_the_main_table_has_the_interval_of_the_figure(undrawn, tmp_path):
    folder = make(tmp_path / "study", (1, 2, 3), measures=ONE)
    _, markdown = written(folder)
    values = [run.scores["perplexity"] for run in load_results(folder).of("t5")]
    low, high = statistics.summarise(values).interval
    assert f"({low:.3f} to {high:.3f})" in markdown


def test_other_data_are_shown_beside_the_flags():
    flags = {"a": {"--lr": 1}, "b": {"--lr": 1, "data": "runs/other data"}}
    assert overview.differing(flags)["b"] == {"data": "runs/other data"}
    assert overview.flag_texts(flags["b"]) == ["--lr 1", "data 'runs/other data'"]


def test_what_all_systems_share_is_a_table_of_the_plan(undrawn, tmp_path):
    more = {"recipe": "translation", "budget": {"epochs": 12}, "data": {"folder": "d"}}
    _, markdown = written(make(tmp_path / "study", measures=ONE, decode={"--beam": 4}, **more))
    for key, value in (("data.folder", "d"), ("budget.epochs", "12"), ("decode.--beam", "4")):
        assert f"| {key} | `{value}` |" in markdown


def test_the_positive_class_is_that_of_the_task():
    task = "fairseq-train --save-dir runs/x/finetune/{}-lr1e-5 --positive-label {}"
    commands = [task.format("mnlimm", "0"), task.format("mnli", "'not so'"), "fairseq-train d"]
    assert sentence_tests.positive_class(commands, "mnli") == "not so"
    assert sentence_tests.positive_class(commands, "mnlimm") == "0"
    assert sentence_tests.positive_class(commands, "rte") is None


def test_tests_that_are_left_out_are_named(undrawn, tmp_path):
    def change(result):
        result["scores"]["cola_f1"] = result["scores"].pop("cola_accuracy")
        result["signatures"] = {"bleu": "tok:zhuyin"}

    f1 = {"better": "higher", "label": "CoLA F1"}
    folder = make(
        tmp_path / "study", measures={"bleu": MEASURES["bleu"], "cola_f1": f1}, change=change
    )
    _, markdown = written(folder)
    assert "because this version of sacreBLEU has no tokenizer zhuyin." in markdown
    assert "Not computed: this version of sacreBLEU has no tokenizer zhuyin." in markdown
    assert "because the commands of the runs do not name the positive class." in markdown
    assert "| bootstrap |" not in markdown and "| permutation |" not in markdown


def timed(tmp_path):
    """A study whose speed was measured in a round that is complete and one that is not."""
    folder = make(
        tmp_path / "study",
        measures=ONE,
        speed={"updates": 5},
        speed_runs=[f"{name}-speed{turn}" for turn in "12" for name in ("stock", "rotary", "t5")],
    )
    for name in ("stock-speed1", "rotary-speed1", "t5-speed1", "stock-speed2", "rotary-speed2"):
        result = {
            "system": name.partition("-")[0], "seed": 1, "digest": "0", "status": "done",
            "scores": {"tokens_per_second": 100}, "peak_memory_mb": 5,
            "environment": {"device": "a GPU"},
        }  # fmt: skip
        if name == "rotary-speed2":
            result.update(status="failed", scores={}, error="many lines\nout of memory\n")
        (folder / "runs" / name).mkdir()
        (folder / "runs" / name / "result.json").write_text(json.dumps(result))
    return measured.speed_section(load_results(folder)).parts


def test_measurements_that_failed_or_are_missing_are_named(tmp_path):
    table, absent = timed(tmp_path)
    assert "on a GPU, in 2 rounds of all systems." in table.caption
    assert absent.items == [
        "rotary, round 2: failed: out of memory",
        "1 of 6 are not measured yet.",
    ]


def test_panels_with_different_positions_have_the_ticks_of_all(monkeypatch):
    ticks = []

    def look(figure):
        figure.canvas.draw()
        ticks.append([label.get_text() for label in figure.axes[0].get_xticklabels()])
        return "<svg></svg>"

    monkeypatch.setattr(figures, "to_svg", look)
    long = figures.curve([{64: 5.0, 128: 6.0, 256: 7.0}])
    short = figures.curve([{64: 5.0, 128: 6.0}])
    for curves in ({"long": long, "short": short}, {"short": short, "long": long}):
        figures.small_multiples("x", "x", curves, "long", ("x", "y"), ("log", "log"))
    assert ticks == 4 * [["64", "128", "256"]]


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


def test_names_in_a_summary_are_html():
    details = Details("a_b <c>", [Prose("d_e")])
    text = to_markdown(Report("f_g", [], [Section("h", [details])]))
    assert "<summary>a_b &lt;c&gt;</summary>" in text and "d\\_e" in text and "# f\\_g" in text
