"""Translating a stream of lines with an engine: prepare, translate in batches, and restore.

Translations keep the order of the lines; an empty or too long line gets an empty translation.
"""

import sys
from argparse import Namespace
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Protocol

from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.serving.preparation import Preparation

Tokens = List[str]

#: The default of ``--max-length``, in tokens: fairseq-generate's --max-len-b.
#: All sentences have the same limit, so that no translation depends on the rest of its batch.
MAX_LENGTH = 200


class Hypothesis(NamedTuple):
    """A translation."""

    tokens: Tokens  # without the end of the sentence
    score: float  # sum of the log-probabilities, divided by length to the power of the penalty


class Beam(NamedTuple):
    """A beam search."""

    size: int  # number of hypotheses
    penalty: float  # exponent of the length by which scores are divided
    n_best: int  # number of translations to return
    max_length: int  # longest translation, in tokens without the end of the sentence
    batch: int  # largest number of tokens in a batch


class Hardware(NamedTuple):
    """The device, the threads and the type with which an engine computes."""

    device: str = "cpu"  # cpu or cuda
    threads: int = 0  # 0 for the engine's default
    compute_type: str = "default"  # the type in which CTranslate2 computes; default: as exported


class Engine(Protocol):
    """Translates tokens."""

    #: longest source and longest target, in tokens with </s>
    longest: Dict[str, int]

    def translate(self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam) -> Any:
        """The n best translations of each source, best first; each starts with the source's prefix.

        No source is empty, or longer than the model accepts; prefixes may be empty.
        """


def translated(
    lines: Iterable[str], text: Preparation, engine: Engine, beam: Beam, args: Namespace
) -> Iterator[str]:
    """The lines to write for *lines*, in their order.

    Args:
        beam: the search; its ``max_length`` is lowered to the model's limit if necessary.
        args: the arguments of ``fairseq-posenc translate``.
    """
    longest = min(beam.max_length, engine.longest["target"] - 1)  # besides </s>
    beam, count = beam._replace(max_length=longest), 0
    for some in in_blocks(lines, args.buffer):
        read = {}
        for number, line in enumerate(some, count + 1):
            source, _, prefix = line.partition("\t") if args.prefix else (line, "", "")
            read[number] = text.source(source), text.target(prefix) if prefix.strip() else []
        fit = {n: pair for n, pair in read.items() if pair[0] and _fits(engine, *pair, n)}
        translations: Dict[int, List[Hypothesis]] = {}
        if fit:
            sources, prefixes = map(list, zip(*fit.values()))
            translations = dict(zip(fit, engine.translate(sources, prefixes, beam)))
        for number in read:
            hypotheses = translations.get(number, [])
            missing = [Hypothesis([], 0.0)] * (beam.n_best - len(hypotheses))
            for hypothesis in [*hypotheses, *missing]:
                columns = [str(number)] if beam.n_best > 1 else []
                columns += [f"{hypothesis.score:.4f}"] if args.scores else []
                restored = text.restore(hypothesis.tokens) if hypothesis.tokens else ""
                yield "\t".join([*columns, restored])
        count += len(some)


def _fits(engine: Engine, source: Tokens, prefix: Tokens, number: int) -> bool:
    """True if the model accepts a line; if not, says so on standard error."""
    for side, tokens in (("source", source), ("target", prefix)):
        longest = engine.longest[side] - 1  # besides </s>
        if len(tokens) > longest:
            what = "the line" if side == "source" else "its prefix"
            print(
                f"line {number}: {what} has {len(tokens)} tokens, and the model accepts "
                f"{longest}; its translation is left empty",
                file=sys.stderr,
            )
            return False
    return True
