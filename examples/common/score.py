"""Score the output of fairseq-generate, naming each kind of BLEU.

    python score.py --lang de --reference test.de --tokenized-reference test.tok.de \\
        [--compound-split] [--json scores.json] generate-test.txt

tokenized BLEU       Moses tokens, hyphenated words unsplit, as multi-bleu computes it
compound-split BLEU  the same, with hyphenated words split as in tensor2tensor's script; the
                     usual score in WMT En-De papers, not comparable to sacreBLEU
sacreBLEU            detokenised text against the raw reference
"""

import argparse
import json
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from moses import detokenizer
from text import atomic_writer, fail, read_lines

try:
    from sacrebleu.metrics import BLEU
except ImportError:
    fail("sacrebleu is not installed; run: pip install sacrebleu")


class Score(NamedTuple):
    """A named BLEU score (0 to 100), its signature, and the number of sentences."""

    name: str
    score: float
    signature: str
    hypotheses: int


def join_dashes(line: str) -> str:
    """Undo Moses' aggressive dash splitting: ``rich @-@ text`` becomes ``rich-text``."""
    return line.replace(" @-@ ", "-")


def split_compounds(line: str) -> str:
    """Split words at hyphens: ``rich-text`` becomes ``rich ##AT##-##AT## text``.

    As in tensor2tensor's ``get_ende_bleu.sh``, a hyphen between two non-space characters is split.
    Matches do not overlap, so only the first hyphen of ``a-b-c`` is.
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)


def read_hypotheses(path: str) -> List[str]:
    """Read the best hypothesis of every sentence from fairseq-generate's output, in order."""
    best: Dict[int, str] = {}
    for line in read_lines(path):
        match = re.match(r"H-(\d+)\t\S+\t?(.*)", line)
        if match:
            best.setdefault(int(match.group(1)), match.group(2))
    if not best:
        fail(f"{path}: no hypotheses (lines that begin with H-)")
    missing = [str(index) for index in range(max(best) + 1) if index not in best]
    if missing:
        fail("{}: no hypothesis for sentence {}".format(path, ", ".join(missing[:5])))
    return [best[index] for index in range(len(best))]


def score(
    hypotheses: Sequence[str],
    reference: Sequence[str],
    tokenized_reference: Sequence[str],
    lang: str,
    compound_split: bool,
) -> List[Score]:
    """Compute the named scores.

    Args:
        hypotheses: tokenised translations, subwords joined.
        reference: raw reference sentences.
        tokenized_reference: the reference, tokenised as the training text was.
        lang: language of the target.
        compound_split: also compute compound-split BLEU.
    """
    system = [join_dashes(line) for line in hypotheses]
    gold = [join_dashes(line) for line in tokenized_reference]
    detokenize = detokenizer(lang)
    jobs = [("tokenized BLEU", BLEU(tokenize="none", force=True), system, gold)]
    if compound_split:
        jobs.append(
            (
                "compound-split BLEU",
                BLEU(tokenize="none", force=True),
                [split_compounds(line) for line in system],
                [split_compounds(line) for line in gold],
            )
        )
    jobs.append(("sacreBLEU", BLEU(), [detokenize(line) for line in hypotheses], list(reference)))
    scores = []
    for name, metric, output, references in jobs:
        result = metric.corpus_score(output, [references])
        scores.append(Score(name, result.score, str(metric.get_signature()), len(output)))
    return scores


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lang", required=True, help="target language, two letters")
    parser.add_argument("--reference", required=True, help="raw reference text")
    parser.add_argument("--tokenized-reference", required=True, help="tokenised reference text")
    parser.add_argument("--compound-split", action="store_true", help="add compound-split BLEU")
    parser.add_argument("--json", help="also write the scores to this file")
    parser.add_argument("generated", help="output of fairseq-generate")
    args = parser.parse_args(argv)
    hypotheses = read_hypotheses(args.generated)
    reference = list(read_lines(args.reference))
    tokenized = list(read_lines(args.tokenized_reference))
    for path, lines in ((args.reference, reference), (args.tokenized_reference, tokenized)):
        if len(lines) != len(hypotheses):
            fail(
                f"{path}: {len(lines)} lines, but {args.generated} has {len(hypotheses)} "
                "hypotheses; pass --required-batch-size-multiple 1 to fairseq-generate"
            )
    scores = score(hypotheses, reference, tokenized, args.lang, args.compound_split)
    for entry in scores:
        print(f"{entry.name:<19} {entry.score:6.2f}  {entry.signature}")
    if args.json:
        with atomic_writer(args.json) as stream:
            json.dump([entry._asdict() for entry in scores], stream, indent=2)
            stream.write("\n")


if __name__ == "__main__":
    main()
