"""Score the output of fairseq-generate, naming each score, and keep the translations as text.

    python score.py --lang de --reference test.de --tokenized-reference test.tok.de \\
        [--compound-split] [--json scores.json] [--hypotheses test.out] generate-test.txt
    python score.py --lang de --reference test.de --documents translations.txt

tokenized BLEU       Moses tokens, hyphenated words unsplit, as multi-bleu computes it
compound-split BLEU  the same, with hyphenated words split as in tensor2tensor's script; the
                     usual score in WMT En-De papers, not comparable to sacreBLEU
sacreBLEU            detokenised text against the raw reference
d-BLEU               the same with each document as one line, with --documents
chrF2, TER           the same text, by sacreBLEU's code; a lower TER is better
COMET                the same text and the source, with --comet and the package unbabel-comet
"""

import json
import os
import re
from argparse import Namespace
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.lines import read_lines, write_text
from fairseq_posenc.flags.usage import documented_parser
from fairseq_posenc.text.documents import units
from fairseq_posenc.text.subwords import KINDS
from fairseq_posenc.text.words import joiner_of

try:
    from sacrebleu.metrics import BLEU, CHRF, TER
except ImportError:
    raise UsageError("sacrebleu is not installed; run: pip install sacrebleu") from None

ASIAN = ("zh", "ja")  # languages without spaces that TER can split


class Score(NamedTuple):
    """A named score (BLEU, chrF, TER: 0 to 100), its signature, and the number of sentences."""

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
        raise UsageError(f"{path}: no hypotheses (lines that begin with H-)")
    missing = [str(index) for index in range(max(best) + 1) if index not in best]
    if missing:
        raise UsageError("{}: no hypothesis for sentence {}".format(path, ", ".join(missing[:5])))
    return [best[index] for index in range(len(best))]


def restorer(tokenizer: str, lang: str) -> Callable[[str], str]:
    """A function that makes plain text of words separated by spaces.

    Args:
        tokenizer: moses, or none.
        lang: the language.
    """
    if tokenizer == "none":
        return lambda line: " ".join(line.split())
    join = joiner_of(tokenizer, lang)
    return lambda line: join(line.split())


def tokenized_scores(
    words: Sequence[str], reference: Sequence[str], compound_split: bool
) -> Iterator[Score]:
    """BLEU of tokenised text.

    Args:
        words: tokenised translations, subwords joined.
        reference: the reference, tokenised as the training text was.
        compound_split: also compute compound-split BLEU.
    """
    kinds: Dict[str, Callable[[str], str]] = {"tokenized BLEU": str}
    if compound_split:
        kinds["compound-split BLEU"] = split_compounds
    for name, change in kinds.items():
        sides = ([change(join_dashes(line)) for line in side] for side in (words, reference))
        yield _measured(name, BLEU(tokenize="none", force=True), *sides)


def text_metrics(lang: str, tokenizer: Optional[str] = None) -> Dict[str, object]:
    """The metrics of plain text, by name.

    Args:
        lang: language of the target; Chinese, Japanese and Korean have tokenisers of their own.
        tokenizer: one of sacreBLEU's tokenisers, instead.
    """
    asian = lang in ASIAN
    try:
        bleu = BLEU(tokenize=tokenizer, trg_lang=lang)
    except (ImportError, RuntimeError) as error:
        wanted = f"--bleu-tokenizer {tokenizer}" if tokenizer else f"target language {lang}"
        raise UsageError(
            f"{wanted}: {' '.join(str(error).split())}; --bleu-tokenizer char needs no package"
        ) from error
    except (KeyError, AssertionError, ValueError):
        raise UsageError(f"--bleu-tokenizer {tokenizer}: sacreBLEU has no such tokeniser") from None
    return {"sacreBLEU": bleu, "chrF2": CHRF(), "TER": TER(normalized=asian, asian_support=asian)}


def text_scores(
    texts: Sequence[str], reference: Sequence[str], lang: str, tokenizer: Optional[str] = None
) -> Iterator[Score]:
    """sacreBLEU, chrF and TER of plain text; see :func:`text_metrics`."""
    for name, metric in text_metrics(lang, tokenizer).items():
        yield _measured(name, metric, texts, reference)


def comet_score(
    model: str, sources: Sequence[str], texts: Sequence[str], reference: Sequence[str]
) -> Score:
    """The score of a COMET model.

    Args:
        model: a checkpoint, or the name of a published model, which is then downloaded.
        sources: raw source sentences.
        texts: translations.
        reference: raw reference sentences.
    """
    try:
        import comet
    except ImportError:
        raise UsageError(
            f"--comet {model}: COMET is not installed; run: pip install unbabel-comet"
        ) from None
    path = model if os.path.exists(model) else comet.download_model(model)
    triples = [{"src": s, "mt": t, "ref": r} for s, t, r in zip(sources, texts, reference)]
    result = comet.load_from_checkpoint(path).predict(triples, batch_size=8)
    version = getattr(comet, "__version__", "unknown")
    return Score(
        "COMET", float(result.system_score), f"model:{model}|version:{version}", len(texts)
    )


def _measured(name: str, metric: object, texts: Sequence[str], reference: Sequence[str]) -> Score:
    result = metric.corpus_score(list(texts), [list(reference)])  # type: ignore[attr-defined]
    signature = str(metric.get_signature())  # type: ignore[attr-defined]
    return Score(name, result.score, signature, len(texts))


def table(scores: Sequence[Score]) -> List[str]:
    """A line for each score."""
    return [f"{entry.name:<19} {entry.score:6.2f}  {entry.signature}" for entry in scores]


def _read_beside(path: str, hypotheses: Sequence[str], generated: str) -> List[str]:
    lines = list(read_lines(path))
    if len(lines) != len(hypotheses):
        raise UsageError(
            f"{path}: {len(lines)} lines, but {generated} has {len(hypotheses)} "
            "hypotheses; pass --required-batch-size-multiple 1 to fairseq-generate"
        )
    return lines


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    add = parser.add_argument
    add("--lang", required=True, help="target language, two letters")
    add("--reference", required=True, help="raw reference text")
    add("--tokenized-reference", metavar="FILE", help="for tokenized BLEU")
    add("--tokenizer", choices=("moses", "none"), default="moses", help="of the text (moses)")
    add("--sentencepiece", metavar="MODEL", help="the hypotheses are pieces of this model")
    add("--compound-split", action="store_true", help="add compound-split BLEU")
    add("--bleu-tokenizer", metavar="NAME", help="of sacreBLEU (by the language)")
    add("--comet", metavar="MODEL", help="add COMET: a checkpoint, or a name to download")
    add("--source", metavar="FILE", help="raw source text, for COMET")
    add("--hypotheses", metavar="FILE", help="also write the translations, detokenised")
    add("--json", metavar="FILE", help="also write the scores to this file")
    add("--text", metavar="FILE", help="also write the table to this file")
    add("--documents", action="store_true", help="GENERATED is what translate --documents wrote")
    add("generated", help="output of fairseq-generate")
    args = parser.parse_args(argv)
    if args.documents:
        scores = document_scores(args)
        _write(args, scores, {})
        return
    if args.comet and not args.source:
        raise UsageError(f"--comet {args.comet}: needs the source text; give --source FILE")
    words = read_hypotheses(args.generated)
    reference = _read_beside(args.reference, words, args.generated)
    if args.sentencepiece:
        pieces = KINDS["sentencepiece"](args.sentencepiece)
        words = [pieces.join(line.split()) for line in words]
    texts = list(map(restorer(args.tokenizer, args.lang), words))
    scores: List[Score] = []
    if args.tokenized_reference:
        tokenized = _read_beside(args.tokenized_reference, words, args.generated)
        scores += tokenized_scores(words, tokenized, args.compound_split)
    scores += text_scores(texts, reference, args.lang, args.bleu_tokenizer)
    if args.comet:
        sources = _read_beside(args.source, words, args.generated)
        scores.append(comet_score(args.comet, sources, texts, reference))
    _write(args, scores, {args.hypotheses: texts})


def document_scores(args: Namespace) -> List[Score]:
    """The scores of translated documents, plain text with a blank line after each."""
    for flag in ("tokenized_reference", "sentencepiece", "compound_split", "comet", "hypotheses"):
        if getattr(args, flag):
            raise UsageError(f"{flag_of(flag)}: is for the output of fairseq-generate; drop it")
    found = units(list(read_lines(args.generated)), list(read_lines(args.reference)))
    scores = list(text_scores(*found["sentences"], args.lang, args.bleu_tokenizer))
    bleu = text_metrics(args.lang, args.bleu_tokenizer)["sacreBLEU"]
    return [*scores, _measured("d-BLEU", bleu, *found["documents"])]


def _write(args: Namespace, scores: Sequence[Score], texts: Dict[str, Sequence[str]]) -> None:
    """Print the scores, and write them and *texts*, by path, to the files that are asked for."""
    print("\n".join(table(scores)))
    outputs: Dict[str, Sequence[str]] = {
        **texts,
        args.text: table(scores),
        args.json: [json.dumps([entry._asdict() for entry in scores], indent=2)],
    }
    for path, lines in outputs.items():
        if path:
            with write_text(path) as stream:
                stream.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
