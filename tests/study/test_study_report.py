"""The reports that examples/study/report writes."""

import csv
import io
import math
import runpy
import sys
import tarfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from support.recipes import recipe_module

pytestmark = pytest.mark.formulas

for package in ("pandas", "seaborn", "statsmodels", "sacrebleu"):
    pytest.importorskip(package, reason="reports of studies need the extra: study")

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "examples" / "study" / "report"
RESULTS = ROOT / "examples" / "study" / "results"
report, runs, seeds, sentences = (
    recipe_module("study/report", name) for name in ("report", "runs", "seeds", "sentences")
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the report on the smallest archive."""
    folder = tmp_path_factory.mktemp("study")
    with tarfile.open(RESULTS / "document_mask" / "runs.tar.xz") as archive:
        archive.extractall(folder)
    report.write(runs.read_study(str(folder)))
    return folder / "report"


def test_the_archive_makes_the_committed_tables(written):
    committed = RESULTS / "document_mask"
    made = (written / "results.csv").read_text(encoding="utf-8")
    assert made == (committed / "results.csv").read_text(encoding="utf-8")
    found, known = (
        list(csv.reader((folder / "differences.csv").read_text().splitlines()))
        for folder in (written, committed)
    )
    assert len(found) == len(known) == 1 + 2 * 15  # 2 measures, 15 pairs of six systems
    for row, expected in zip(found, known):
        assert row[:3] == expected[:3]
        if row[0] != "measure":
            numbers = [[float(cell or 0) for cell in one[3:9]] for one in (row, expected)]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-4)


def test_means_and_letters_are_those_of_the_committed_report(written):
    def rows(text):
        table = text.split("| system | perplexity")[1].split("\n\n")[0]
        return table.splitlines()[2:]

    committed = (RESULTS / "document_mask" / "report.md").read_text(encoding="utf-8")
    text = (written / "report.md").read_text(encoding="utf-8")
    assert rows(text) == rows(committed)
    figures = {path.name for path in (written / "figures").iterdir()}
    assert {"score-perplexity.svg", "learning.svg"} == figures
    assert len(text.split()) <= 1500
    assert all(f"](figures/{name})" in text for name in figures)
    assert r"\toprule" in (written / "results.tex").read_text(encoding="utf-8")


def additive_model(values):
    """Means of *values* (systems, seeds), standard error of differences, and degrees of freedom."""
    values = np.asarray(values, dtype=np.float64)
    systems, seeds = values.shape
    rows, columns = values.mean(1, keepdims=True), values.mean(0)
    residuals = values - rows - columns + values.mean()
    degrees = (systems - 1) * (seeds - 1)
    return rows[:, 0], math.sqrt((residuals**2).sum() / degrees * 2 / seeds), degrees


def test_differences_are_those_of_the_formulas(written):
    from scipy import stats

    text = (written / "results.csv").read_text(encoding="utf-8")
    by_system = {}
    for row in csv.DictReader(io.StringIO(text)):
        by_system.setdefault(row["system"], []).append(float(row["loss"]))
    study = runs.read_study(str(written.parent))
    found = seeds.compare(study.scores("loss"), "lower")
    means, error, degrees = additive_model(list(by_system.values()))
    pairs = list(combinations(range(len(means)), 2))
    p = [2 * stats.t.sf(abs(means[a] - means[b]) / error, degrees) for a, b in pairs]
    # Holm 1979: of n values of p, multiply the smallest by n, the next by n - 1, …; never decrease
    order = np.argsort(p)
    holm = np.minimum(1, np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1)))
    adjusted = dict(zip(order.tolist(), holm))
    names = list(by_system)
    reach = stats.t.ppf(0.975, degrees) * error
    for number, (a, b) in enumerate(pairs):
        one = found.differences[names[a], names[b]]
        mean = means[a] - means[b]
        assert one.mean == pytest.approx(mean, abs=1e-12)
        assert one.interval == pytest.approx((mean - reach, mean + reach), abs=1e-12)
        assert one.p == pytest.approx(p[number], abs=1e-12)
        assert one.adjusted == pytest.approx(adjusted[number], abs=1e-12)
        alone = stats.ttest_rel(by_system[names[a]], by_system[names[b]]).pvalue
        assert one.alone == pytest.approx(alone, abs=1e-12)


def frame(values):
    """A table of scores; *values* maps a system to a list with None for missing seeds."""
    import pandas as pd

    rows = [
        (name, seed, float(score))
        for name, scores in values.items()
        for seed, score in enumerate(scores)
        if score is not None
    ]
    return pd.DataFrame(rows, columns=["system", "seed", "score"])


def test_differences_without_noise_or_without_a_common_seed():
    compare = seeds.compare
    found = compare(frame({"a": [1, 2], "b": [3, 4], "c-d": [1, 2]}), "higher")
    assert found.differences["b", "a"].mean == pytest.approx(2)
    assert found.differences["b", "a"][2:4] == (0.0, 0.0)
    assert found.differences["a", "c-d"][:4] == (0.0, (0.0, 0.0), 1.0, 1.0)
    assert found.letters == {"b": "a", "a": "b", "c-d": "b"}
    scores = {"a": [1, 2, 4, None], "b": [2, 4, 5, None], "c": [None, None, None, 9]}
    found = compare(frame(scores), "higher")
    assert found.differences["c", "a"][1:4] == (None, None, None)
    assert found.differences["b", "a"].p == pytest.approx(found.differences["b", "a"].alone)
    found = compare(frame({"a": [1], "b": [2]}), "lower")  # one seed allows no test
    assert found.letters == {} and found.differences["a", "b"].p is None


def test_where_errors_are_not_normal_only_pairs_are_tested():
    from scipy import stats

    scores = {"a": [1, 2, 3, 4, 5], "b": [2, 3, 4, 5, 60], "c": [3, 4.1, 5, 6.1, 7]}
    found = seeds.compare(frame(scores), "higher")
    assert min(found.assumed.values()) < 0.05 and found.letters == {}
    one = found.differences["b", "a"]
    assert (one.interval, one.p, one.adjusted) == (None, None, None)
    assert one.alone == pytest.approx(stats.ttest_rel(scores["b"], scores["a"]).pvalue)


def test_seeds_needed():
    from scipy import stats

    number = seeds.seeds_for(1.5)
    draws = np.random.default_rng(0).normal(1.5, 1, (20_000, number))
    assert (stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(
        0.85, abs=0.06
    )


def test_sentences(monkeypatch):
    monkeypatch.setattr(sentences, "RESAMPLES", 100)
    references = [f"the {n} dogs run in the park today ." for n in range(12)]
    worse = ["no"] * 8 + references[8:]
    found = sentences.compare_translations(
        sentences.metric("bleu", ""), references, references, {"same": references, "worse": worse}
    )
    assert all(one["same"] == 1 and one["worse"] < 0.05 for one in found.values())
    labels, wrong = ["1", "0"] * 10, ["0", "1"] * 5 + ["1", "0"] * 5
    assert sentences.compare_accuracies(labels, wrong, labels) == 2 * 0.5**10


def test_a_folder_without_a_study(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path)])
    monkeypatch.syspath_prepend(str(SCRIPTS))
    with pytest.raises(SystemExit, match=r"plan\.yaml: is not the plan of a study"):
        runpy.run_path(str(SCRIPTS / "report.py"), run_name="__main__")
