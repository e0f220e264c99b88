"""Print the results of this recipe as the tables of RoFormer do.

    fairseq-posenc script tables.py RUN --stages "512x256x200000 ..." [--paper]
    fairseq-posenc script tables.py OUT

Table 4: RUN is the folder that train.sh writes, with stage1/train.log and so on. Loss (in nats) and
accuracy are those of the last validation of each stage. With --paper, the table has the paper's
accuracies.

Table 5: OUT is the folder that finetune.sh writes, with MODEL-LENGTH/cail/RUN/score-LENGTH.log.
Accuracies are means over the runs of a model, in percent, on the validation and the test set.
"""

import math
import re
import statistics
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.flags.usage import documented_parser

_VALUE = re.compile(r"\| (loss|accuracy) ([\d.]+)")
#: Table 4: accuracies of the stages.
ACCURACIES = ("65.0", "66.8", "64.6", "63.4", "67.4", "66.2")
_SCORE = re.compile(r"'(valid1?)' subset .*\| accuracy ([\d.]+)")
_LENGTH = re.compile(r"score-(\d+)\.log")
#: Table 5: validation and test at 512 tokens.
PAPER = {"bert": "64.13, 67.77", "wobert": "64.07, 68.10", "roformer": "64.13, 68.29"}

Key = Tuple[str, int]


def last_validation(log: Path) -> Dict[str, float]:
    """Loss in bits and accuracy in percent of the last validation in a log."""
    found: Dict[str, float] = {}
    for line in read_lines(str(log)):
        if "valid on 'valid' subset" in line:
            found = {name: float(value) for name, value in _VALUE.findall(line)} or found
    if "loss" not in found:
        raise UsageError(f"{log}: has no validation; remove --disable-validation")
    return found


def render_stages(run: Path, stages: str, paper: bool = False) -> List[str]:
    """The table in Markdown.

    Args:
        run: the folder of train.sh.
        stages: its stages.
        paper: whether they are those of the paper, whose accuracies are then shown.
    """
    rows = []
    for number, stage in enumerate(stages.split(), 1):
        values = last_validation(run / f"stage{number}" / "train.log")
        cells = [str(number), *stage.split("x"), f"{values['loss'] * math.log(2):.2f}"]
        cells.append(f"{values['accuracy']:.1f}" if "accuracy" in values else "")
        cells.append(ACCURACIES[number - 1] if paper else "")
        rows.append(cells)
    head = ["stage", "tokens", "samples", "updates", "loss", "accuracy", "paper"]
    return markdown_table(head, rows)


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


def render_lengths(out: Path) -> List[str]:
    """The table in Markdown, a row for each model and length."""
    rows = []
    for (model, length), scores in sorted(collect(out).items()):
        name, _, trained = model.rpartition("-")
        means = [f"{statistics.mean(scores[subset]):.2f}" for subset in ("valid", "valid1")]
        paper = PAPER.get(name, "") if trained == str(length) == "512" else ""
        rows.append([model, str(length), str(len(scores["valid"])), *means, paper])
    return markdown_table(["model", "read at", "runs", "validation", "test", "paper"], rows)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stages")
    parser.add_argument("--paper", action="store_true", help="with the paper's accuracies")
    args = parser.parse_args(argv)
    if args.stages is None:
        lines = render_lengths(args.folder)
    else:
        lines = render_stages(args.folder, args.stages, args.paper)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
