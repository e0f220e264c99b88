"""Print a table of the models of run.sh: bits per character of the validation text.

    python bits.py OUT

OUT contains ENCODING-seedN/score-valid.log, the output of fairseq-eval-lm for the last checkpoint,
and train.log.
"""

import argparse
import statistics
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from perplexities import Score, collect


def render(table: Dict[str, List[Score]]) -> List[str]:
    """The table in Markdown, the worst encoding first.

    Args:
        table: the scores of all runs by encoding.
    """
    rows = []
    for encoding, scores in table.items():
        mean = statistics.mean(score.bits for score in scores)
        seeds = ", ".join(f"{score.bits:.3f} ({score.seed})" for score in scores)
        updates = "/".join(sorted({f"{score.updates:,}" for score in scores}))
        rows.append((mean, f"| `{encoding}` | {updates} | {mean:.3f} | {seeds} |"))
    head = "| encoding | updates | bits per character, mean | of each run (seed) |"
    return [head, "|" + " --- |" * 4, *(row for _, row in sorted(rows, reverse=True))]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    print("\n".join(render(collect(parser.parse_args(argv).out, "valid"))))


if __name__ == "__main__":
    main()
