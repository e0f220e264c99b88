"""Print the accuracies of finetune.sh by length, next to RoFormer's Table 5.

    fairseq-posenc script lengths.py OUT

OUT contains MODEL-LENGTH/cail/RUN/score-LENGTH.log. Accuracies are means over the runs of a model,
in percent, on the validation and the test set.
"""

import argparse
import re
import statistics
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines

_SCORE = re.compile(r"'(valid1?)' subset .*\| accuracy ([\d.]+)")
_LENGTH = re.compile(r"score-(\d+)\.log")
#: Table 5: validation and test at 512 tokens.
PAPER = {"bert": "64.13, 67.77", "wobert": "64.07, 68.10", "roformer": "64.13, 68.29"}

Key = Tuple[str, int]


def collect(out: Path) -> Dict[Key, Dict[str, List[float]]]:
    """The accuracies of all runs, by model and length of scoring, and by subset."""
    found: Dict[Key, Dict[str, List[float]]] = {}
    for log in sorted(out.glob("*/cail/*/score-*.log")):
        length = _LENGTH.fullmatch(log.name)
        if not length:
            continue
        scores = dict(_SCORE.findall("\n".join(read_lines(str(log)))))
        if set(scores) != {"valid", "valid1"}:
            raise UsageError(f"{log}: is incomplete; remove it and run finetune.sh again")
        cell = found.setdefault((log.parts[-4], int(length.group(1))), {})
        for name, score in scores.items():
            cell.setdefault(name, []).append(float(score))
    if not found:
        raise UsageError(f"{out}: contains no scores of finetune.sh")
    return found


def render(out: Path) -> List[str]:
    """The table in Markdown, a row for each model and length."""
    lines = ["| model | read at | runs | validation | test | paper |", "| --- " * 6 + "|"]
    for (model, length), scores in sorted(collect(out).items()):
        name, _, trained = model.rpartition("-")
        means = [f"{statistics.mean(scores[subset]):.2f}" for subset in ("valid", "valid1")]
        paper = PAPER.get(name, "") if trained == str(length) == "512" else ""
        cells = [model, str(length), str(len(scores["valid"])), *means, paper]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    print("\n".join(render(parser.parse_args(argv).out)))


if __name__ == "__main__":
    main()
