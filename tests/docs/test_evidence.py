"""Numbers in README.md and docs/ agree with the committed runs of the studies."""

import csv
import json
import re
import tarfile
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from statistics import mean, stdev

import pytest
from support.commands import ROOT

RESULTS = ROOT / "examples" / "study" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHOOSE = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
LONGER = (ROOT / "docs" / "longer.md").read_text(encoding="utf-8")
NAMES = {"Transformer-XL": "transformer_xl", "rotary with random positions": "rotary-random"}
# Maps encodings in the page's table to names of systems in the studies' plans, where they differ.
MULTI30K = {"tupe+t5": "tupe-r", "sinusoidal": "transformer"}
MASKED_LM = {"tupe+t5": "tupe-r", "tupe": "tupe-a", "learned": "bert-a", "learned+t5": "bert-r"}
MASKED_LM["bert_ad"] = "bert-ad"
FLAGS = {
    "rotary --rotary-kept 0.75": "rotary-kept",
    "rotary --random-positions 1024": "rotary-random",
}


def rows(file):
    with open(file, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def scores(study, *measures):
    """The mean of the *measures*, by system and seed."""
    found = defaultdict(dict)
    for row in rows(RESULTS / study / "results.csv"):
        if all(row[measure] for measure in measures):
            values = [float(row[measure]) for measure in measures]
            found[row["system"]][int(row["seed"])] = mean(values)
    return found


def steps(study, name):
    """The record of step *name* of each run in the archive, including trials of the search."""
    found = {}
    with tarfile.open(RESULTS / study / "runs.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(f"steps/{name}.json"):
                found[member.name.split("/")[1]] = json.load(archive.extractfile(member))
    return found


def rounded(values, digits):
    number = Decimal(str(round(mean(values), 6)))
    return str(number.quantize(Decimal(10) ** -digits, ROUND_HALF_UP))


def table(page, head):
    """The cells of each row of the table whose head begins with *head*."""
    (lines,) = re.findall(rf"^\| {head}.*\n\| ---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]


def system_of(name):
    """The name, in the study of generated tasks, of a system in the page's table."""
    return name.strip("`").replace(" --random-positions 128", "-random")


def test_readme_says_what_the_page_says():
    """The tests below compare the page with the studies."""
    page = {re.search("`([^`]*)`", name)[1]: cells for name, *cells in table(CHOOSE, "encoding")}
    bleu = {name: rounded([float(cells[0])], 1) for name, cells in page.items() if cells[0]}
    named = "rotary {rotary}, stock {sinusoidal}, a learned table {learned}, no positions {none}]"
    assert named.format(**bleu) in README
    best = {"tupe", "tupe+t5", "transformer_xl"}
    assert {name for name in bleu if float(bleu[name]) > 32} == best
    tasks = {system_of(name): cell for name, cell, *_ in table(CHOOSE, r"\| 10 and 12 sym")}
    (cells,) = re.findall(r"^\| \[Generated tasks\].*? \| (.*) \|$", README, re.MULTILINE)
    for cell in re.sub(r" \([^)]*\)", "", cells).split(", "):
        name, value = cell.rsplit(" ", 1)
        assert value == tasks[NAMES.get(name, name.lower())]


def test_language_models():
    t = pytest.importorskip("scipy.stats").t
    tests = rows(RESULTS / "language_model_long" / "differences.csv")
    assert all(float(row["p_holm"]) < 0.05 for row in tests if row["measure"] == "loss_test")
    head = re.search(r"^\| perplexity \| (.*) \|$", CHOOSE, re.MULTILINE)[1].split(" | ")
    runs = scores("language_model_long", "word_perplexity_test")
    for label, cell in zip(head, table(CHOOSE, "perplexity")[0][1:]):
        values = list(runs.pop(NAMES.get(label, label.lower())).values())
        half = t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
        ends = (rounded([mean(values) + sign * half], 0) for sign in (-1, 1))
        assert cell == "{} ({}–{})".format(rounded(values, 0), *ends)
        assert f"{label} {cell}" in README
    assert not runs
    of_rotary = [r for r in tests if (r["measure"], r["system"]) == ("perplexity_test", "rotary")]
    apart = {row["against"]: -float(row["difference"]) for row in of_rotary}
    assert "2,000 updates: {t5:.1f} and {learned:.0f})".format(**apart) in CHOOSE
    assert "after 2,000, {t5:.1f} above".format(**apart) in CHOOSE


def test_masked_language_models():
    first, chosen = defaultdict(list), {}
    for row in rows(RESULTS / "masked_lm" / "results.csv"):
        chosen[row["system"]] = re.search(r"--lr (\S+)", row["flags"])[0]
    for run, record in steps("masked_lm", "train").items():
        system = run.rsplit("-seed", 1)[0]
        if f"{chosen[system]} " in record["command"]:
            curve = record["result"]["curve"]
            below = [point["update"] for point in curve if point.get("train_loss", 9) < 8]
            first[system].append(min(below, default=None))
    assert all(len(first[system]) == 3 for system in chosen)
    page = " ".join(CHOOSE.split())
    spans = [f"{min(first[name]):,} to {max(first[name]):,}" for name in ("rotary", "tupe-r")]
    assert "after {} updates with rotary; {} with TUPE-R; 2,200, 2,300".format(*spans) in page
    assert {2200, 2300, None} == set(first["tupe-a-tied"])
    for system in ("tupe-a", "bert-a", "bert-r", "bert-ad"):
        assert first[system] == [None, None, None]
    needed, losses = {}, {}
    with tarfile.open(RESULTS / "masked_lm_long" / "runs.tar.xz") as archive:
        for name in filter(re.compile(".*/result.json").fullmatch, archive.getnames()):
            run = json.load(archive.extractfile(name))
            below = [each["update"] for each in run["curve"] if each.get("train_loss", 9) < 8]
            needed[run["system"]], losses[run["system"]] = min(below), run["scores"]["loss"]
    said = "RoFormer: {rotary:,}; TUPE-R: {tupe-r:,}; BERT-A: {bert-a:,} |"
    assert said.format(**needed) in README
    said = "after {rotary:,} updates with rotary, {tupe-r:,} with TUPE-R and {bert-a:,} with BERT-A"
    assert said.format(**needed) in page
    said = "TUPE-R has {tupe-r:.2f} bits, rotary {rotary:.2f} and BERT-A, .* {bert-a:.2f}"
    assert re.search(said.format(**losses), page)


def test_the_table_of_encodings():
    perplexities, evaluated = defaultdict(list), steps("language_model", "evaluate")
    for run, record in steps("language_model", "train").items():
        if "--lr 2e-3 " in record["command"]:
            perplexity = evaluated[run]["result"]["scores"]["perplexity"]
            perplexities[run.rsplit("-seed", 1)[0]].append(perplexity)
    read = scores("language_model", "perplexity_128"), scores("language_model", "perplexity_1024")
    columns = [
        (scores("multi30k", "bleu"), MULTI30K, 2),
        (scores("masked_lm", "loss"), MASKED_LM, 3),
        (perplexities, FLAGS, 1),
    ]
    for name, *cells, percent in table(CHOOSE, "encoding"):
        name = re.search("`([^`]*)`", name)[1]
        for cell, (runs, names, digits) in zip(cells, columns):
            values = runs[names.get(name, name)]
            values = values.values() if isinstance(values, dict) else values
            assert not cell or re.split("[ ;]", cell)[0] == rounded(values, digits), name
        if percent not in ("", "–"):
            short, long = (mean(runs[FLAGS.get(name, name)].values()) for runs in read)
            assert int(percent) == round(100 * (long / short - 1)), name


def test_generated_tasks_of_the_page():
    for name, *cells in table(CHOOSE, r"\| 10 and 12 sym")[:-1]:
        for cell, lengths in zip(cells, ([10, 12], [16], [10, 12, 16, 24, 32])):
            tasks = [f"{task}_length{length}" for task in ("copy", "reverse") for length in lengths]
            values = scores("lengths_small", *tasks)[system_of(name)].values()
            assert cell == rounded(values, len(lengths) // 5), name


def test_tables_of_longer_inputs():
    lengths = (128, 256, 512, 1024)
    read = [scores("language_model", f"perplexity_{length}") for length in lengths]
    for name, *cells in table(LONGER, "trained at 128"):
        assert cells == [rounded(runs[name.strip("`")].values(), 1) for runs in read], name
    runs = defaultdict(list)
    for row in rows(ROOT / "examples" / "language_model" / "scaling.csv"):
        runs[row["name"], int(row["length"])].append(float(row["perplexity"]))
    for name, *cells in table(LONGER, "perplexity")[1:]:
        rule = name.partition(",")[0].lower().replace("llama 3", "llama3").replace(" ", "_")
        assert cells == [rounded(runs[f"rotary, {rule}", length], 1) for length in lengths], name


COMPARISONS = {
    ("multi30k", "bleu"): "rotary/transformer rotary/shaw shaw/transformer t5/learned rotary/t5 "
    "tupe/learned tupe/transformer tupe-r/learned tupe-r/transformer gau/rotary none/learned",
    ("language_model", "perplexity"): "rotary/t5 t5/learned rotary/learned tupe/learned "
    "tupe/sinusoidal none/sinusoidal none/learned none/rotary dape/fire dape/kerple fox/rotary",
    ("masked_lm", "loss"): "rotary/bert-a tupe-r/tupe-a tupe-r/bert-a tupe-a/bert-a "
    "tupe-a/tupe-a-tied",
    ("masked_lm", "sst2_accuracy"): "rotary/bert-a tupe-r/tupe-a tupe-r/bert-a bert-r/bert-a "
    "bert-ad/bert-a",
    ("lengths_small", "beyond"): "none/learned none/sinusoidal none/t5 none/alibi none/rotary "
    "rotary-random/rotary sinusoidal-random/sinusoidal learned-random/learned dape/fire "
    "dape/kerple",
}


def test_what_is_seen_of_the_papers():
    ttest = pytest.importorskip("scipy.stats").ttest_rel
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    tested = {}
    for (study, measure), pairs in COMPARISONS.items():
        runs = scores(study, measure)
        for pair in pairs.split():
            first, second = (runs[system] for system in pair.split("/"))
            values = [[scored[seed] for seed in sorted(first)] for scored in (first, second)]
            tested[study, measure, pair] = float(ttest(*values).pvalue)
    alone = {key for key, p in tested.items() if p < 0.05}
    corrected = multitest.multipletests(list(tested.values()), method="holm")[0]
    seen = {pair for (*_, pair), holds in zip(tested, corrected) if holds}
    assert seen == {
        *("rotary/transformer", "shaw/transformer", "tupe/learned"),
        *("rotary/t5", "rotary/learned", "rotary/bert-a", "sinusoidal-random/sinusoidal"),
    }
    assert not any(pair.endswith("/bert-a") for _, m, pair in alone if m == "sst2_accuracy")
    section = CHOOSE.split("### What the papers say")[1]
    hints, others = len(alone) - len(seen), len(tested) - len(alone)
    assert f"The {len(tested)} comparisons" in section
    assert re.search(rf"Seven are\s+seen, {hints} are hints[^.]* {others} are undecided", section)
    assert len(table(section, "seen")) == 5  # two rows have two comparisons each
