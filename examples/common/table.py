"""Print the scores of fine-tuned models: python table.py [--median] [--last] FOLDER...

Each FOLDER has the train.log of fairseq-train with --log-format json. Folders whose names differ
only in "seedN" share a row: the mean (or median) and the standard deviation of their scores,
taken at the best epoch (by valid_f1, or else by the log's first score), or with --last at the last.
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Dict, List

#: The names of scores in the log.
SCORES = re.compile(r"(valid\d*)_(f1|exact|accuracy|mcc|pearson|spearman|pearson_and_spearman)")


def epochs(folder: Path) -> List[Dict[str, float]]:
    """The scores of a run after each epoch."""
    found: Dict[int, Dict[str, float]] = {}
    for line in (folder / "train.log").read_text("utf-8").split("\n"):
        entry = json.loads(line[line.index("{") :]) if '{"epoch"' in line else {}
        named = {name: float(value) for name, value in entry.items() if SCORES.fullmatch(name)}
        if named:
            found.setdefault(entry["epoch"], {}).update(named)
    return [found[epoch] for epoch in sorted(found)]


def main(arguments: List[str]) -> None:
    """Print a row for each group of runs."""
    folders = [Path(word) for word in arguments if not word.startswith("--")]
    if not folders or {word for word in arguments if word[:2] == "--"} - {"--median", "--last"}:
        sys.exit(__doc__)
    rows: Dict[str, List[Dict[str, float]]] = {}
    for folder in folders:
        try:
            found = epochs(folder)
        except (OSError, ValueError) as error:
            sys.exit(f"{folder}: has no complete train.log ({error})")
        if not found:
            sys.exit(f"{folder}/train.log: has no scores; train with --log-format json")
        first = "valid_f1" if "valid_f1" in found[0] else next(iter(found[0]))
        best = found[-1] if "--last" in arguments else max(found, key=lambda e: e[first])
        rows.setdefault(re.sub(r"[-_]?seed\d+", "", str(folder)), []).append(best)
    combine = statistics.median if "--median" in arguments else statistics.mean
    print("| run | seeds | scores |\n| --- | --- | --- |")
    for name, runs in rows.items():
        cells = []
        for score in runs[0]:
            values = [run[score] for run in runs if score in run]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{score} {combine(values):.2f}{spread}")
        print(f"| {name} | {len(runs)} | {', '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
