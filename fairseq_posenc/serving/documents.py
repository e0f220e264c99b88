"""Translating documents: sentence by sentence with the own translations before, or in one piece.

Blank lines separate documents.  A sentence's translation starts from those of its context, as in
:mod:`fairseq_posenc.text.documents`, so that the model goes on from what it has said.
"""

import sys
from typing import Dict, Iterable, Iterator, List, NamedTuple, Tuple

from fairseq_posenc.basics.lines import in_blocks
from fairseq_posenc.serving.preparation import Preparation
from fairseq_posenc.serving.translate import Beam, Engine, Format, Tokens, Translator
from fairseq_posenc.text.documents import Context, Pair, in_pieces, joined, parted, with_context


class _Part(NamedTuple):
    """Sentences of one document among the lines that were read together."""

    before: List[Pair]  # the sentences before with their translations; grows
    places: List[int]  # the places of its sentences among the lines


class DocumentTranslator(Translator):
    """Translates the documents of a text.

    Args:
        preparation: prepares and restores the text.
        engine: translates the tokens.
        beam: the search; its limit on the length holds for each sentence.
        context: what the model is given with a sentence.
    """

    def __init__(
        self, preparation: Preparation, engine: Engine, beam: Beam, context: Context
    ) -> None:
        super().__init__(preparation, engine, beam._replace(n_best=1), Format())
        self._context, self._limit = context, engine.longest["target"] - 1
        # the context leaves a translation half of what the model can write, or its longest
        room = self._limit - min(beam.max_length, self._limit // 2)
        self._room = (engine.longest["source"] - 1, room)
        self._dropped = 0

    def translate(self, lines: Iterable[str], buffer: int) -> Iterator[str]:
        """See :class:`~fairseq_posenc.serving.translate.Translator`."""
        before: List[Pair] = []
        self._dropped = 0
        count, whole = 0, self._context.sentences is None
        for some in in_documents(lines, buffer) if whole else in_blocks(lines, buffer):
            found = [""] * len(some)
            parts = [_Part(before, [])]
            for place, line in enumerate(some):
                if line.strip():
                    parts[-1].places.append(place)
                else:
                    parts.append(_Part([], []))
            sources = [self._text.source(line) for line in some]
            if whole:
                self._at_once(parts, sources, found, count)
            else:
                self._in_turn(parts, sources, found, count)
            before, count = parts[-1].before, count + len(some)
            yield from found
        if self._dropped:
            print(
                f"{self._dropped} sentences of context did not fit beside their sentences; the "
                "farthest were left out",
                file=sys.stderr,
            )

    def _in_turn(
        self, parts: List[_Part], sources: List[Tokens], found: List[str], count: int
    ) -> None:
        """Translate the first sentences of all parts together, then the second ones, and so on."""
        for turn in range(max(len(part.places) for part in parts)):
            asked: List[Tuple[_Part, int]] = []
            given: List[Tuple[Tokens, Tokens]] = []
            for part in parts:
                if turn < len(part.places):
                    place = part.places[turn]
                    if not self._can(sources[place], count + place + 1):
                        continue
                    pair = Pair(sources[place], [])
                    sample = with_context(part.before, pair, self._context, self._room)
                    self._dropped += sample.dropped
                    asked.append((part, place))
                    given.append((sample.source, sample.target))
            translated = self._search(given, [1] * len(given))
            for (part, place), (_, prefix), tokens in zip(asked, given, translated):
                sentence = parted(tokens[len(prefix) :])[0]
                if sentence:
                    found[place] = self._text.restore(sentence)
                    part.before.append(Pair(sources[place], sentence))

    def _at_once(
        self, parts: List[_Part], sources: List[Tokens], found: List[str], count: int
    ) -> None:
        """Translate whole documents, in pieces that fit."""
        pieces: List[List[int]] = []
        for part in parts:
            places = [p for p in part.places if self._can(sources[p], count + p + 1)]
            for pairs in in_pieces([Pair(sources[p], []) for p in places], self._room[0]):
                pieces.append(places[: len(pairs)])
                places = places[len(pairs) :]
        asked: List[Tuple[Tokens, Tokens]] = [
            (joined([sources[place] for place in piece]), []) for piece in pieces
        ]
        for piece, tokens in zip(pieces, self._search(asked, list(map(len, pieces)))):
            sentences = parted(tokens)
            if len(sentences) != len(piece):
                print(
                    f"lines {count + piece[0] + 1} to {count + piece[-1] + 1}: their translation "
                    f"has {len(sentences)} sentences in place of {len(piece)}; the last lines are "
                    f"{'left empty' if len(sentences) < len(piece) else 'joined'}",
                    file=sys.stderr,
                )
            last = [token for sentence in sentences[len(piece) - 1 :] for token in sentence]
            for place, sentence in zip(piece, [*sentences[: len(piece) - 1], last]):
                found[place] = self._text.restore(sentence) if sentence else ""

    def _can(self, source: Tokens, number: int) -> bool:
        """True if a line has tokens, and no more than the model accepts."""
        return bool(source) and self._fits(source, [], number)

    def _search(self, asked: List[Tuple[Tokens, Tokens]], sentences: List[int]) -> List[Tokens]:
        """The best translation of each source, with the prefix that it starts from.

        Those of one limit are translated together: a limit does not depend on other documents.
        """
        limits: Dict[int, List[int]] = {}
        for number, ((_, prefix), many) in enumerate(zip(asked, sentences)):
            limit = min(len(prefix) + many * (self._beam.max_length + 1), self._limit)
            limits.setdefault(limit, []).append(number)
        found: List[Tokens] = [[] for _ in asked]
        for limit, numbers in sorted(limits.items()):
            sources, prefixes = zip(*(asked[number] for number in numbers))
            beam = self._beam._replace(max_length=limit)
            translated = self._engine.translate(list(sources), list(prefixes), beam)
            for number, hypotheses in zip(numbers, translated):
                found[number] = hypotheses[0].tokens if hypotheses else []
        return found


def in_documents(lines: Iterable[str], buffer: int) -> Iterator[List[str]]:
    """Lists of lines that end with a document, and of at least *buffer* lines but the last.

    >>> list(in_documents(["a", "b", "", "c"], 1))
    [['a', 'b', ''], ['c']]
    """
    some: List[str] = []
    for line in lines:
        some.append(line)
        if len(some) >= buffer and not line.strip():
            yield some
            some = []
    if some:
        yield some
