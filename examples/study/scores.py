"""The scores of translations, answers, generated tasks and documents."""

import csv
import json
import re
import sys
from importlib import import_module
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Dict, Sequence

from logs import Part, fields_of, lines_of

ENOUGH = 90.0  # percent; a model breaks at the first length with fewer correct outputs


def bleu(generated: str, references: str, sources: str, target: str, suffix: str) -> Part:
    """Write translations, references and sources to files, and score translations by sacreBLEU.

    Args:
        generated: the output of fairseq-generate.
    """
    metrics = import_module("sacrebleu.metrics")
    best: Dict[int, str] = {}
    for line in lines_of(generated):
        match = re.match(r"D-(\d+)\t\S+\t?(.*)", line)
        if match:
            best.setdefault(int(match.group(1)), " ".join(match.group(2).split()))
    written = {
        "hypotheses": [best[number] for number in sorted(best)],
        "references": lines_of(references),
    }
    if sorted(best) != list(range(len(written["references"]))):
        said = f"{references}: {len(written['references'])} lines, but {len(best)} translations"
        sys.exit(f"{said}; give the raw text of the same subset")
    if Path(sources).exists() and len(lines_of(sources)) == len(best):
        written["sources"] = lines_of(sources)
    files = {}
    for name, lines in written.items():
        files[name + suffix] = str(Path(generated).with_name(f"{name}{suffix}.txt"))
        text = "".join(line + "\n" for line in lines)
        Path(files[name + suffix]).write_text(text, encoding="utf-8")
    asian = target in ("zh", "ja")
    scorers = {
        "bleu": metrics.BLEU(trg_lang=target),
        "chrf": metrics.CHRF(),
        "ter": metrics.TER(normalized=asian, asian_support=asian),
    }
    scores = {
        name + suffix: round(
            one.corpus_score(written["hypotheses"], [written["references"]]).score, 4
        )
        for name, one in scorers.items()
    }
    signatures = {name + suffix: str(one.get_signature()) for name, one in scorers.items()}
    return {"scores": scores, "signatures": signatures, "files": files}


def extrapolation(table: str) -> Part:
    """Perplexities keyed by context length, from the CSV table of extrapolation.py."""
    with open(table, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {"extrapolation": {row["length"]: float(row["perplexity"]) for row in rows}}


def answers(tables: Sequence[str], key: str, names: Sequence[str], positive: str) -> Part:
    """The scores of a task at its best learning rate, which the first of the scores decides.

    Args:
        tables: files of labels and predictions, one for each rate.
        names: the names of the scores.
        positive: the label for which F1 is computed.
    """
    found = {table: _of_answers(table, names, positive) for table in tables}
    best = max(tables, key=lambda table: found[table][names[0]])
    scores = {f"{key}_{name}": value for name, value in found[best].items()}
    return {"scores": scores, "files": {"answers": {key: best}}}


def _of_answers(table: str, names: Sequence[str], positive: str) -> Dict[str, float]:
    sklearn, scipy = import_module("sklearn.metrics"), import_module("scipy.stats")
    pairs = [line.split("\t") for line in lines_of(table)]
    right, given = zip(*pairs)
    if names[0] in ("pearson", "spearman"):
        right, given = (tuple(map(float, side)) for side in (right, given))
    compute = {
        "accuracy": lambda: sklearn.accuracy_score(right, given),
        "f1": lambda: sklearn.f1_score(
            [one == positive for one in right], [one == positive for one in given], zero_division=0
        ),
        "mcc": lambda: sklearn.matthews_corrcoef(right, given),
        "pearson": lambda: scipy.pearsonr(right, given)[0],
        "spearman": lambda: scipy.spearmanr(right, given)[0],
    }
    constant = 1 in (len(set(right)), len(set(given)))  # no correlation is defined
    zero = [name for name in ("mcc", "pearson", "spearman") if constant]
    return {name: 0.0 if name in zero else round(100 * compute[name](), 2) for name in names}


def lengths(log: str, task: str, trained: int) -> Part:
    """The percentage of correct outputs of a generated task at each length, and its scores.

    Args:
        trained: the longest training length.
    """
    found: Dict[int, float] = {}
    for fields in map(fields_of, lines_of(log)):
        for key, value in fields.items():
            match = re.fullmatch(r"length(\d+)_exact_match", key)
            if match:
                found[int(match.group(1))] = float(value)
    longest = 0
    for length in sorted(found):
        if found[length] < ENOUGH:
            break
        longest = length
    told = {
        "within": mean(value for length, value in found.items() if length <= trained),
        "beyond": mean(value for length, value in found.items() if length > trained),
        "breaking": longest / trained,
    }
    scores = {f"{task}_{name}": value for name, value in told.items()}
    by_length = {str(length): found[length] for length in sorted(found)}
    return {"scores": scores, "lengths": {task: by_length}}


def documents(choices: Sequence[str], hypotheses: str, references: str, target: str) -> Part:
    """Accuracies of contrastive choices, and BLEU of sentences and of whole documents.

    Args:
        choices: the files of contrastive.py, each ``SUFFIX=FILE``.
        hypotheses: translations, with a blank line after each document, as in *references*.
    """
    scores: Dict[str, float] = {}
    for entry in choices:
        suffix, _, path = entry.partition("=")
        groups = json.loads(Path(path).read_text(encoding="utf-8"))["accuracies"]
        near = [groups[name] for name in groups if re.fullmatch("distance [123]", name)]
        found = {"accuracy": groups["all"]["accuracy"]}
        for name, one in groups.items():
            if ":" not in name and not name.startswith("distance") and name != "all":
                found[f"accuracy_{name}"] = one["accuracy"]
        if near:
            right = sum(one["accuracy"] * one["choices"] for one in near)
            found["near"] = right / sum(one["choices"] for one in near)
        if "distance >3" in groups:
            found["far"] = groups["distance >3"]["accuracy"]
        scores.update({name + suffix: round(value, 4) for name, value in found.items()})
    metric = import_module("sacrebleu.metrics").BLEU(trg_lang=target)
    lines = lines_of(hypotheses), lines_of(references)
    if len(lines[0]) != len(lines[1]):
        sys.exit(f"{references}: does not have as many lines as {hypotheses}")
    blocks = groupby(zip(*lines), key=lambda pair: bool(pair[1].strip()))
    pairs = [list(zip(*block)) for has_text, block in blocks if has_text]
    sentences = [[line for pair in pairs for line in pair[side]] for side in (0, 1)]
    whole = [[" ".join(pair[side]) for pair in pairs] for side in (0, 1)]
    for name, (ours, theirs) in (("bleu", sentences), ("d_bleu", whole)):
        scores[name] = round(metric.corpus_score(ours, [theirs]).score, 4)
    return {"scores": scores, "signatures": {"bleu": str(metric.get_signature())}}
