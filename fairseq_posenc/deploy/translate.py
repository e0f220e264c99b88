"""Translating a stream of lines: prepare, translate in batches, restore, in the order of the input.

Lines that are empty, or longer than the model accepts, keep their place as empty translations.
"""

import itertools
import sys
import time
from typing import IO, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_posenc.deploy.engine import Beam, Engine, Hypothesis, Tokens
from fairseq_posenc.deploy.text import Preparation
from fairseq_posenc.errors import UsageError


class Format(NamedTuple):
    """The lines that are written for each line that is read.

    Args:
        scores: begin each with its score and a tab.
        numbered: begin each with the number of its source line, from 1, and a tab.
        prefixes: read what a translation starts with after a tab.
    """

    scores: bool = False
    numbered: bool = False
    prefixes: bool = False


def read_lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream; only a line feed ends one.

    Raises:
        UsageError: a line is not UTF-8; it is named.
    """
    for number, line in enumerate(stream, 1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"line {number} of the input: byte {error.start + 1} of it is not UTF-8; convert "
                "the text, for example with iconv"
            ) from error


class Translator:
    """Translates lines of text.

    Args:
        preparation: of the text.
        engine: of the tokens.
        beam: the search; its longest translation is an upper bound.
        format: of the lines.
    """

    def __init__(
        self, preparation: Preparation, engine: Engine, beam: Beam, format: Format
    ) -> None:
        self._text, self._engine, self._beam, self._format = preparation, engine, beam, format

    def translate(self, lines: Iterable[str], buffer: int) -> Iterator[str]:
        """The lines to write for *lines*, in their order.

        Args:
            lines: the source text.
            buffer: number of lines to read before they are translated.
        """
        source, count = iter(lines), 0
        while True:
            some = list(itertools.islice(source, buffer))
            if not some:
                return
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
            translated = self._engine.translate(sources, prefixes, self._bounded(sources))
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
        """Whether the model accepts a line; if not, says so on standard error."""
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

    def _bounded(self, sources: List[Tokens]) -> Beam:
        """The search, with translations of at most twice the longest source and 200 tokens."""
        longest = min(self._engine.longest["target"] - 1, self._beam.max_length)
        wanted = 2 * max(len(source) for source in sources) + 200
        return self._beam._replace(max_length=min(longest, wanted))

    def _line(self, hypothesis: Hypothesis, number: int) -> str:
        columns = [str(number)] if self._format.numbered else []
        columns += [f"{hypothesis.score:.4f}"] if self._format.scores else []
        text = self._text.restore(hypothesis.tokens) if hypothesis.tokens else ""
        return "\t".join([*columns, text])


class Progress:
    """The number of lines and the rate, on a terminal.

    Args:
        stream: shown if it is a terminal.
        seconds: least time between two updates.
    """

    def __init__(self, stream: IO[str], seconds: float = 0.5) -> None:
        self._stream = stream if stream.isatty() else None
        self._seconds, self._begun = seconds, time.monotonic()
        self._shown, self._count = self._begun, 0

    def add(self, last: bool = False) -> None:
        """Count a line, or with *last* none, and end the display."""
        self._count += not last
        now = time.monotonic()
        if self._stream is None or (not last and now < self._shown + self._seconds):
            return
        rate = self._count / max(now - self._begun, 1e-9)
        end = "\n" if last else ""
        self._stream.write(f"\r{self._count:,} lines, {rate:,.1f} a second {end}")
        self._stream.flush()
        self._shown = now


def write_lines(lines: Iterable[str], stream: IO[str], progress: Optional[Progress] = None) -> None:
    """Write *lines* as they come."""
    for line in lines:
        stream.write(line + "\n")
        stream.flush()
        if progress is not None:
            progress.add()
    if progress is not None:
        progress.add(last=True)
