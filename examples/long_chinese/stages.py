"""Print the stages of train.sh as RoFormer's Table 4 does.

    fairseq-posenc script stages.py RUN --stages "512x256x200000 ..." [--paper]

RUN is the folder that train.sh writes, with stage1/train.log and so on. Loss (in nats) and accuracy
are those of the last validation of each stage. With --paper, the table has the paper's accuracies.
"""

import argparse
import math
import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines

_VALUE = re.compile(r"\| (loss|accuracy) ([\d.]+)")
ACCURACIES = ("65.0", "66.8", "64.6", "63.4", "67.4", "66.2")  # the paper's


def last_validation(log: Path) -> Dict[str, float]:
    """Loss in bits and accuracy in percent of the last validation in a log."""
    found: Dict[str, float] = {}
    for line in read_lines(str(log)):
        if "valid on 'valid' subset" in line:
            found = {name: float(value) for name, value in _VALUE.findall(line)} or found
    if "loss" not in found:
        raise UsageError(f"{log}: has no validation; remove --disable-validation")
    return found


def render(run: Path, stages: str, paper: bool = False) -> List[str]:
    """The table in Markdown.

    Args:
        run: the folder of train.sh.
        stages: its stages.
        paper: whether they are those of the paper, whose accuracies are then shown.
    """
    lines = ["| stage | tokens | samples | updates | loss | accuracy | paper |"]
    lines.append("| --- " * 7 + "|")
    for number, stage in enumerate(stages.split(), 1):
        values = last_validation(run / f"stage{number}" / "train.log")
        cells = [str(number), *stage.split("x"), f"{values['loss'] * math.log(2):.2f}"]
        cells.append(f"{values['accuracy']:.1f}" if "accuracy" in values else "")
        cells.append(ACCURACIES[number - 1] if paper else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--stages", required=True)
    parser.add_argument("--paper", action="store_true", help="with the paper's accuracies")
    args = parser.parse_args(argv)
    print("\n".join(render(args.run, args.stages, args.paper)))


if __name__ == "__main__":
    main()
