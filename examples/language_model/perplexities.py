"""Print a table of the language models of compare.sh, next to Table 6 of RoFormer.

    python perplexities.py [--subset test] [--characters] OUT

OUT contains ENCODING-seedN/score-SUBSET.log, the output of fairseq-eval-lm, and train.log.
Perplexities are averaged over seeds. Bits are the mean loss per token in base 2: bits per
character if tokens are characters or bytes; with --characters, these are averaged instead.
"""

import re
import statistics
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.flags.usage import documented_parser

SCORE = re.compile(r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)")
UPDATES = re.compile(r"num_updates[= ](\d+)")
#: RoFormer, Table 6: loss in nats and perplexity on OpenWebText2, 125 M parameters, 55,000 updates.
PAPER = {"learned": "2.809, 16.59", "t5": "2.801, 16.46", "rotary": "2.759, 15.78"}


class Score(NamedTuple):
    """The scores of one run."""

    seed: int
    updates: int
    bits: float
    perplexity: float


def _last_match(pattern: "re.Pattern[str]", log: Path) -> Sequence[str]:
    found = [match for match in map(pattern.search, read_lines(str(log))) if match]
    if not found:
        raise UsageError(f"{log}: is incomplete; remove it and run compare.sh again")
    return found[-1].groups()


def collect(out: Path, subset: str) -> Dict[str, List[Score]]:
    """The scores of all runs, by encoding and in the order of seeds."""
    table: Dict[str, List[Score]] = {}
    for log in sorted(out.glob(f"*-seed*/score-{subset}.log")):
        encoding, _, seed = log.parent.name.rpartition("-seed")
        bits, perplexity = map(float, _last_match(SCORE, log))
        (updates,) = map(int, _last_match(UPDATES, log.with_name("train.log")))
        table.setdefault(encoding, []).append(Score(int(seed), updates, bits, perplexity))
    if not table:
        raise UsageError(
            f"{out}: contains no runs of compare.sh (ENCODING-seedN/score-{subset}.log)"
        )
    return {encoding: sorted(scores) for encoding, scores in table.items()}


def render(table: Dict[str, List[Score]]) -> List[str]:
    """The table in Markdown, the worst encoding first."""

    def mean(encoding: str) -> float:
        return statistics.mean(score.perplexity for score in table[encoding])

    seeds = sorted({score.seed for scores in table.values() for score in scores})
    names = ["encoding", "updates", "perplexity, mean", *(f"seed {seed}" for seed in seeds)]
    names += ["bits per token", "RoFormer Table 6, OpenWebText2: loss, perplexity"]
    rows = []
    for encoding in sorted(table, key=mean, reverse=True):
        scores = {score.seed: score for score in table[encoding]}
        updates = "/".join(sorted({f"{score.updates:,}" for score in scores.values()}))
        row = [f"`{encoding}`", updates, f"{mean(encoding):.2f}"]
        row += [f"{scores[seed].perplexity:.2f}" if seed in scores else "" for seed in seeds]
        row.append(f"{statistics.mean(score.bits for score in scores.values()):.4f}")
        rows.append([*row, PAPER.get(encoding, "")])
    lines = markdown_table(names, rows)
    if len({score.updates for scores in table.values() for score in scores}) > 1:
        lines += ["", "Not comparable: the runs differ in their number of updates."]
    return lines


def render_characters(table: Dict[str, List[Score]]) -> List[str]:
    """The table of bits per character in Markdown, the worst encoding first."""
    rows = []
    for encoding, scores in table.items():
        mean = statistics.mean(score.bits for score in scores)
        seeds = ", ".join(f"{score.bits:.3f} ({score.seed})" for score in scores)
        updates = "/".join(sorted({f"{score.updates:,}" for score in scores}))
        rows.append((mean, [f"`{encoding}`", updates, f"{mean:.3f}", seeds]))
    head = ["encoding", "updates", "bits per character, mean", "of each run (seed)"]
    return markdown_table(head, (row for _, row in sorted(rows, reverse=True)))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("--subset", default="valid")
    parser.add_argument("--characters", action="store_true", help="bits per character")
    parser.add_argument("out", type=Path)
    args = parser.parse_args(argv)
    shown = render_characters if args.characters else render
    print("\n".join(shown(collect(args.out, args.subset))))


if __name__ == "__main__":
    main()
