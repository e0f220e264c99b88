"""Translating a stream of lines by an engine: prepare, translate in batches, restore, in order.

Lines that are empty, or longer than the model accepts, keep their place as empty translations.
"""

import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Protocol, Tuple

from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.serving.preparation import Preparation

Tokens = List[str]

#: The longest translation in tokens unless a user says otherwise: fairseq-generate's --max-len-b.
#: The limit is the same for every sentence, so that no translation depends on its neighbours.
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
    batch: int  # tokens translated at once


class Hardware(NamedTuple):
    """The device and the numbers with which an engine computes."""

    device: str = "cpu"  # cpu or cuda
    threads: int = 0  # 0 for the engine's default
    compute_type: str = "default"  # the type in which CTranslate2 computes; default: as exported


class Engine(Protocol):
    """Translates tokens."""

    #: longest source and longest target, in tokens with </s>
    longest: Dict[str, int]

    def translate(self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam) -> Any:
        """The n best translations of each source, best first.

        Args:
            sources: none is empty, or longer than the model accepts.
            prefixes: what each translation starts with; may be empty.
        """


class Format(NamedTuple):
    """The lines that are written for each line that is read."""

    scores: bool = False  # begin each with its score and a tab
    numbered: bool = False  # begin each with the number of its source line, from 1, and a tab
    prefixes: bool = False  # read what a translation starts with after a tab


class Translator:
    """Translates lines of text.

    Args:
        preparation: prepares and restores the text.
        engine: translates the tokens.
        beam: the search; the model's own limit applies where its longest translation is longer.
        format: the format of the lines.
    """

    def __init__(
        self, preparation: Preparation, engine: Engine, beam: Beam, format: Format
    ) -> None:
        longest = min(beam.max_length, engine.longest["target"] - 1)  # besides </s>
        self._text, self._engine, self._format = preparation, engine, format
        self._beam = beam._replace(max_length=longest)

    def translate(self, lines: Iterable[str], buffer: int) -> Iterator[str]:
        """The lines to write for *lines*, in their order.

        Args:
            lines: the source text.
            buffer: number of lines to read before they are translated.
        """
        count = 0
        for some in in_blocks(lines, buffer):
            for hypotheses in self._translate(some, count):
                count += 1
                for hypothesis in hypotheses:
                    yield self._line(hypothesis, count)

    def _translate(self, lines: List[str], before: int) -> List[List[Hypothesis]]:
        """The n best translations of each line; *before* lines were read earlier."""
        sources, prefixes, places = [], [], []  # type: List[Tokens], List[Tokens], List[int]
        for place, line in enumerate(lines):
            source, prefix = self._tokens(line)
            if source and self._fits(source, prefix, before + place + 1):
                sources.append(source)
                prefixes.append(prefix)
                places.append(place)
        nothing = Hypothesis([], 0.0)
        found = [[nothing] * self._beam.n_best for _ in lines]
        if sources:
            translated = self._engine.translate(sources, prefixes, self._beam)
            for place, hypotheses in zip(places, translated):
                missing = self._beam.n_best - len(hypotheses)
                found[place] = [*hypotheses, *[nothing] * missing]
        return found

    def _tokens(self, line: str) -> Tuple[Tokens, Tokens]:
        if not self._format.prefixes:
            return self._text.source(line), []
        source, _, prefix = line.partition("\t")
        return self._text.source(source), self._text.target(prefix) if prefix.strip() else []

    def _fits(self, source: Tokens, prefix: Tokens, number: int) -> bool:
        """True if the model accepts a line; if not, says so on standard error."""
        for side, tokens in (("source", source), ("target", prefix)):
            longest = self._engine.longest[side] - 1  # besides </s>
            if len(tokens) > longest:
                what = "the line" if side == "source" else "its prefix"
                print(
                    f"line {number}: {what} has {len(tokens)} tokens, and the model accepts "
                    f"{longest}; its translation is left empty",
                    file=sys.stderr,
                )
                return False
        return True

    def _line(self, hypothesis: Hypothesis, number: int) -> str:
        columns = [str(number)] if self._format.numbered else []
        columns += [f"{hypothesis.score:.4f}"] if self._format.scores else []
        text = self._text.restore(hypothesis.tokens) if hypothesis.tokens else ""
        return "\t".join([*columns, text])
