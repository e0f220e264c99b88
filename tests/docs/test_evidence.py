"""README.md and "Which encoding" say what the committed runs of the studies say."""

import csv
import json
import re
import tarfile
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "examples" / "study" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "which_encoding.md").read_text(encoding="utf-8")
NAMES = {
    "RoFormer": "rotary",
    "Transformer-XL": "transformer_xl",
    "sinusoids": "sinusoidal",
    "rotary with random positions": "rotary-random",
    "TUPE-A with [CLS] tied": "tupe-a-tied",
}
# Of systems whose names differ between the page's table and the plans of the columns.
MULTI30K = {"tupe+t5": "tupe-r", "sinusoidal": "transformer"}
MASKED_LM = {"tupe+t5": "tupe-r", "tupe": "tupe-a", "learned": "bert-a", "learned+t5": "bert-r"}
MASKED_LM["bert_ad"] = "bert-ad"
FLAGS = {
    "rotary --rotary-kept 0.75": "rotary-kept",
    "rotary --random-positions 1024": "rotary-random",
}


def scores(study, *measures, file="results.csv"):
    """By system and seed, the mean of the measures."""
    found = defaultdict(dict)
    with open(RESULTS / study / file, encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            values = [float(row[measure]) for measure in measures]
            found[row["system"]][int(row["seed"])] = mean(values)
    return found


def steps(study, name):
    """What a step of each run in the archive has recorded, trials of the search included."""
    found = {}
    with tarfile.open(RESULTS / study / "runs.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(f"steps/{name}.json"):
                found[member.name.split("/")[1]] = json.load(archive.extractfile(member))
    return found


def rounded(values, digits):
    number = Decimal(str(round(mean(values), 6)))
    return str(number.quantize(Decimal(10) ** -digits, ROUND_HALF_UP))


def language_models(rate):
    """Perplexities by system of all runs with a learning rate."""
    found = defaultdict(list)
    evaluated = steps("language_model", "evaluate")
    for run, record in steps("language_model", "train").items():
        if f"--lr {rate} " in record["command"]:
            perplexity = evaluated[run]["result"]["scores"]["perplexity"]
            found[run.rsplit("-seed", 1)[0]].append(perplexity)
    return found


def said(row):
    """What a row of README.md says of each system."""
    (cells,) = re.findall(rf"^\| \[{row}\].*? \| (.*) \|$", README, re.MULTILINE)
    cells = re.sub(r" \([^)]*\)", "", cells).split(", ")
    pairs = [cell.rsplit(" ", 1) for cell in cells]
    return {NAMES.get(name, name.lower()): value for name, value in pairs}


def test_translation_of_the_readme():
    runs = scores("multi30k", "bleu")
    means = {system: rounded(seeds.values(), 1) for system, seeds in runs.items()}
    named = "rotary {rotary}, stock {transformer}, a learned table {learned}, no positions {none}]"
    assert named.format(**means) in README
    assert {system for system, value in means.items() if float(value) > 32} == {
        *("tupe", "tupe-r", "transformer_xl")
    }


def test_language_models_of_the_readme():
    row, runs = said("Language model"), language_models("2e-3")
    assert row == {system: rounded(runs[system], 1) for system in row}
    assert len(row) == 12 and all(len(runs[system]) == 3 for system in row)


def test_generated_tasks_of_the_readme():
    measures = [f"{task}_length{length}" for task in ("copy", "reverse") for length in (10, 12)]
    row, runs = said("Generated tasks"), scores("lengths_small", *measures)
    assert row == {system: rounded(runs[system].values(), 0) for system in row}


def test_masked_language_models_of_the_readme():
    first = defaultdict(list)
    finished = scores("masked_lm", "loss")
    chosen = {system: next(iter(flags)) for system, flags in rates("masked_lm").items()}
    for run, record in steps("masked_lm", "train").items():
        system = run.rsplit("-seed", 1)[0]
        if f"--lr {chosen[system]} " in record["command"]:
            curve = record["result"]["curve"]
            below = [point["update"] for point in curve if point.get("train_loss", 9) < 8]
            first[system].append(min(below, default=None))
    assert all(len(first[system]) == 3 for system in finished)
    (row,) = re.findall(r"^\| \[Masked LM\].*$", README, re.MULTILINE)
    for name, system in (("RoFormer", "rotary"), ("TUPE-R", "tupe-r")):
        assert f"{name} {min(first[system]):,} to {max(first[system]):,}," in row
    assert {2200, 2300, None} == set(first["tupe-a-tied"])
    assert "TUPE-A with [CLS] tied 2,200, 2,300 and never, TUPE-A and three BERTs never" in row
    for system in ("tupe-a", "bert-a", "bert-r", "bert-ad"):
        assert first[system] == [None, None, None]


def rates(study):
    """The learning rate of each system's runs."""
    found = defaultdict(set)
    with open(RESULTS / study / "results.csv", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            found[row["system"]].add(re.search(r"--lr (\S+)", row["flags"])[1])
    return found


def test_the_table_of_encodings():
    columns = [
        (scores("multi30k", "bleu"), MULTI30K, 2),
        (scores("masked_lm", "loss"), MASKED_LM, 3),
        (scores("language_model", "perplexity"), FLAGS, 1),
        (language_models("2e-3"), FLAGS, 1),
    ]
    (table,) = re.findall(r"^\| encoding \| BLEU.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    for line in table.splitlines():
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.search("`([^`]*)`", name)[1]
        for cell, (runs, names, digits) in zip(cells, columns):
            values = runs[names.get(name, name)]
            values = values.values() if isinstance(values, dict) else values
            assert not cell or re.split("[ ;]", cell)[0] == rounded(values, digits), line


def test_generated_tasks_of_the_page():
    (table,) = re.findall(r"^\| \| 10 and 12 sym.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    for line in table.splitlines()[:-1]:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        system = re.sub(r" --random-positions 128", "-random", name.strip("`"))
        for cell, lengths in zip(cells, ([10, 12], [16], [10, 12, 16, 24, 32])):
            tasks = [f"{task}_length{length}" for task in ("copy", "reverse") for length in lengths]
            values = scores("lengths_small", *tasks)[system].values()
            assert cell.split(" ")[0] == rounded(values, len(lengths) // 5), line


def test_scalings_of_rotary():
    recipe = ROOT / "examples" / "language_model"
    runs = defaultdict(list)
    with open(recipe / "scaling.csv", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            runs[row["name"], row["length"]].append(float(row["perplexity"]))
    text = (recipe / "README.md").read_text(encoding="utf-8")
    rules = {"linear": "linear", "NTK": "ntk", "Llama 3": "llama3", "YaRN": "yarn"}
    rules["YaRN untruncated"] = "yarn_untruncated"
    for name, rule in rules.items():
        means = [
            rounded(runs[f"rotary, {rule}", length], 1) for length in "128 256 512 1024".split()
        ]
        assert f"| {name}, factor 8 | {' | '.join(means)} |" in text


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
    section = PAGE.split("### What the papers say")[1]
    hints, others = len(alone) - len(seen), len(tested) - len(alone)
    assert f"The {len(tested)} comparisons" in section
    assert re.search(rf"Seven are seen, {hints} are hints[^.]*and {others} cannot be told", section)
    assert section.count("**seen**") == 1 + 5  # the definition, and the rows with the seven
