"""Contrastive sets in the format of ContraPro (Mueller et al. 2018, arXiv 1810.02268).

    python contrastive.py write contrapro.json documents OUT.en OUT.de
    python contrastive.py score contrapro.json generated.txt [accuracies.json]

For each translation of a sentence, the correct one first, write makes a document: the preceding
sentences, and then the sentence with this translation. generated.txt is what `fairseq-generate
--score-reference` prints for the documents. A choice is correct if the correct translation is the
most probable one. Choices without a wrong translation are left out and counted.
"""

import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

# The file of the target text, the zero-based number of its line, the source word with its
# translation (it:sie), the distance in sentences back to the deciding word, wrong translations.
Choice = Tuple[str, int, str, int, List[str]]


def read(path: str) -> List[Choice]:
    """The choices that have a wrong translation."""
    found: List[Choice] = []
    try:
        for entry in json.loads(Path(path).read_text(encoding="utf-8")):
            wrong = [one["contrastive"] for one in entry["errors"] if one["contrastive"]]
            kind = f"{entry['src pronoun']}:{entry['ref pronoun']}".lower()
            numbers = (int(entry["segment id"]) - 1, int(entry["ante distance"]))
            found.append((entry["document id"], numbers[0], kind, numbers[1], wrong))
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        sys.exit(f"{path}: entry {len(found) + 1}: is not in ContraPro's format ({error!r})")
    kept = [choice for choice in found if choice[-1]]
    print(f"{path}: {len(kept)} of {len(found)} choices have a wrong translation", file=sys.stderr)
    return kept or sys.exit(f"{path}: no choice has a wrong translation")


def write(choices: str, folder: str, source: str, target: str) -> None:
    """Write the documents of all choices; the suffixes of the two files are the languages."""
    files = {path.name: path for path in sorted(Path(folder).rglob("*"))}
    texts: Dict[str, List[Tuple[str, str]]] = {}
    documents: List[List[Tuple[str, str]]] = []
    for name, place, _, _, wrong in read(choices):
        if name not in texts:
            sides = [Path(name).stem + Path(source).suffix, name]
            if not files.keys() >= set(sides):
                sys.exit(f"{folder}: has no file {' or '.join(sides)}")
            lines = [files[side].read_text(encoding="utf-8").split("\n") for side in sides]
            if len(lines[0]) != len(lines[1]):
                sys.exit(f"{files[name]}: does not have as many lines as {sides[0]}")
            texts[name] = [(one.strip(), two.strip()) for one, two in zip(*lines)]
        if not 0 <= place < len(texts[name]) or not all(texts[name][place]):
            sys.exit(f"{choices}: {name} has no sentence in line {place + 1}")
        before: List[Tuple[str, str]] = []
        for pair in texts[name][:place]:  # the sentences since the last blank line
            before = [*before, pair] if all(pair) else []
        for two in (texts[name][place][1], *wrong):
            documents.append([*before, (texts[name][place][0], two), ("", "")])
    for path, side in ((source, 0), (target, 1)):
        text = "".join(pair[side] + "\n" for document in documents for pair in document)
        Path(path).write_text(text, encoding="utf-8")


def score(choices: str, generated: str, output: str = "") -> None:
    """Print accuracies in percent: overall, per source word, per translation and per distance."""
    printed = re.findall(r"^([SP])-(\d+)\t(.*)$", Path(generated).read_text("utf-8"), re.MULTILINE)
    sources = {int(number): text for kind, number, text in printed if kind == "S"}
    parts = {int(number): text.split() for kind, number, text in printed if kind == "P"}
    totals = {number: math.log(2) * sum(map(float, part)) for number, part in parts.items()}
    known, start, values = read(choices), 0, []
    if sorted(totals) != list(range(sum(1 + len(choice[-1]) for choice in known))):
        sys.exit(f"{generated}: does not have one score for each translation in {choices}")
    counts: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for _, _, kind, distance, wrong in known:
        lines = range(start, start + 1 + len(wrong))
        start = lines.stop
        if len({sources[n] for n in lines}) > 1:
            sys.exit(f"{generated}: line {lines[0] + 1}: variants have different contexts")
        values.append([totals[n] for n in lines])
        far = str(distance) if distance <= 3 else ">3"  # as in ContraPro
        for group in ("all", kind.partition(":")[0], kind, f"distance {far}"):
            counts[group] += 1
            hits[group] += values[-1][0] > max(values[-1][1:])
    order = sorted(counts, key=lambda group: (group != "all", group.startswith("distance"), group))
    found = {g: {"accuracy": 100 * hits[g] / counts[g], "choices": counts[g]} for g in order}
    if output:
        Path(output).write_text(json.dumps({"accuracies": found, "scores": values}), "utf-8")
    print("| choices | right (%) | number |\n| --- | --- | --- |")
    for group, one in found.items():
        print(f"| {group} | {one['accuracy']:.1f} | {one['choices']} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"] and len(sys.argv) == 6:
        write(*sys.argv[2:])
    elif sys.argv[1:2] == ["score"] and len(sys.argv) in (4, 5):
        score(*sys.argv[2:])
    else:
        sys.exit(__doc__)
