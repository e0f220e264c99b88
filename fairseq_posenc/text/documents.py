"""The sentences of parallel documents, each after the sentences before it, its context.

A text has a sentence a line, and blank lines between its documents.  A model is given samples: a
context and its sentence with :data:`SEPARATOR` between sentences, the concatenation of Tiedemann
and Scherrer 2017, arXiv 1708.05943.
"""

import sys
from collections import Counter
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import between_none, read_pairs, write_texts

Tokens = List[str]
#: The symbol after each sentence that another follows.
SEPARATOR = "<brk>"
#: The context that makes one sample of a document, or of as much of it as fits.
WHOLE = "whole"
#: Whether the source and the target have the context, by its name.
SIDES: Dict[str, Tuple[bool, bool]] = {
    "both": (True, True),
    "source": (True, False),
    "target": (False, True),
}


class Context(NamedTuple):
    """The context of a model's sentences."""

    #: the largest number of sentences before a sentence; None for whole documents
    sentences: Optional[int] = None
    sides: str = "both"  # a key of :data:`SIDES`


class Sample(NamedTuple):
    """Sentences that a model is given as one."""

    source: Tokens
    target: Tokens
    dropped: int  # the number of sentences of the context that did not fit


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: Tokens
    target: Tokens


def contexts_of(value: str, flag: str = "--context") -> List[Optional[int]]:
    """The contexts in a list such as ``0,3,whole``; None for whole documents.

    Raises:
        UsageError: an entry is neither.
    """
    found: List[Optional[int]] = []
    for entry in value.split(","):
        if entry != WHOLE and not entry.isdecimal():
            raise UsageError(
                f"{flag} {value}: {entry!r} is neither a number of sentences nor {WHOLE}"
            )
        found.append(None if entry == WHOLE else int(entry))
    return found


def joined(sentences: Sequence[Tokens]) -> Tokens:
    """The sentences as one, with :data:`SEPARATOR` between them.

    >>> joined([["a", "b"], ["c"]])
    ['a', 'b', '<brk>', 'c']
    """
    found: Tokens = []
    for number, sentence in enumerate(sentences):
        found += [SEPARATOR] * bool(number) + sentence
    return found


def parted(tokens: Tokens) -> List[Tokens]:
    """The sentences that :func:`joined` made one.

    >>> parted(["a", "b", "<brk>", "c"])
    [['a', 'b'], ['c']]
    """
    found: List[Tokens] = [[]]
    for token in tokens:
        if token == SEPARATOR:
            found.append([])
        else:
            found[-1].append(token)
    return found


def with_context(
    before: Sequence[Pair], pair: Pair, context: Context, longest: Sequence[int]
) -> Sample:
    """A sentence after as many of the sentences before it as there is room for.

    Args:
        before: the sentences of the document before it, the nearest last.
        pair: the sentence; its target may be empty.
        context: how many of them the model is given, and on which sides.
        longest: tokens for which source and target have room, separators included.
    """
    has = SIDES[context.sides]
    wanted = (
        before if context.sentences is None else before[max(len(before) - context.sentences, 0) :]
    )
    chosen: List[Pair] = []
    lengths = [len(side) for side in pair]
    for one in reversed(wanted):
        lengths = [n + (len(side) + 1) * on for n, side, on in zip(lengths, one, has)]
        if any(length > room for length, room in zip(lengths, longest)):
            break
        chosen.insert(0, one)
    chosen.append(pair)
    source, target = (
        joined([one[side] for one in chosen]) if has[side] else pair[side] for side in (0, 1)
    )
    return Sample(source, target, len(wanted) - len(chosen) + 1)


def in_pieces(document: Sequence[Pair], longest: int) -> Iterator[List[Pair]]:
    """The sentences of a document, as many together as fit in *longest* tokens on both sides."""
    piece: List[Pair] = []
    for pair in document:
        sides = zip(*piece, pair)
        if piece and any(sum(map(len, side)) + len(piece) > longest for side in sides):
            yield piece
            piece = []
        piece.append(pair)
    if piece:
        yield piece


def parallel_documents(source: str, target: str) -> Iterator[List[Pair]]:
    """The documents of two parallel texts.

    Raises:
        UsageError: the texts differ in their numbers of lines, or in where lines are blank.
    """

    def pairs() -> Iterator[Optional[Pair]]:
        for number, lines in enumerate(read_pairs(source, target), 1):
            pair = Pair(*(line.split() for line in lines))
            if bool(pair.source) != bool(pair.target):
                blank = source if not pair.source else target
                raise UsageError(
                    f"{source} and {target}: line {number} is blank in {blank} alone; a blank line "
                    "ends a document in both"
                )
            yield pair if pair.source else None

    return between_none(pairs())


def samples(
    document: Sequence[Pair], contexts: Iterable[Optional[int]], sides: str, longest: int
) -> Iterator[Sample]:
    """The samples of a document, one after the other for each context.

    Args:
        document: its sentences, none of more tokens than *longest*.
        contexts: numbers of sentences; None makes samples of :func:`in_pieces`.
        sides: a key of :data:`SIDES`.
        longest: most tokens of a sample on a side.
    """
    for count in contexts:
        if count is None:
            for piece in in_pieces(document, longest):
                source, target = (joined(list(side)) for side in zip(*piece))
                yield Sample(source, target, 0)
            continue
        for number, pair in enumerate(document):
            yield with_context(document[:number], pair, Context(count, sides), (longest, longest))


def write_samples(
    texts: Sequence[str],
    outputs: Sequence[str],
    contexts: Sequence[Optional[int]],
    sides: str,
    longest: int,
) -> None:
    """Write the samples of parallel documents, each line a sample; see :func:`samples`.

    A sentence of more than *longest* tokens is left out.  The report counts such sentences, and the
    sentences of context that did not fit.

    Args:
        texts: the source and the target, in tokens.
        outputs: the two files to write.

    Raises:
        UsageError: there is no boundary between documents, or a text has the separator.
    """
    counts: Counter[str] = Counter()
    with write_texts(outputs) as (left, right):
        for document in parallel_documents(texts[0], texts[1]):
            _refuse_separator(document, texts)
            fitting = [pair for pair in document if max(map(len, pair)) <= longest]
            counts.update(documents=1, sentences=len(document), long=len(document) - len(fitting))
            for sample in samples(fitting, contexts, sides, longest):
                left.write(" ".join(sample.source) + "\n")
                right.write(" ".join(sample.target) + "\n")
                counts.update(samples=1, dropped=sample.dropped)
        if not counts["samples"]:
            raise UsageError(f"{texts[0]}: has no sentence of at most {longest} tokens")
        if counts["documents"] == 1 and counts["sentences"] > 1:
            raise UsageError(
                f"{texts[0]}: has no blank line, which ends a document; put one after each document"
            )
    print(
        f"{texts[0]}: {counts['documents']:,} documents, {counts['sentences']:,} sentences, "
        f"{counts['samples']:,} samples; {counts['dropped']:,} sentences of context did not fit in "
        f"{longest:,} tokens, and {counts['long']:,} sentences were left out",
        file=sys.stderr,
    )


def _refuse_separator(document: Sequence[Pair], texts: Sequence[str]) -> None:
    for pair in document:
        for tokens, path in zip(pair, texts):
            if SEPARATOR in tokens:
                raise UsageError(
                    f"{path}: has the symbol {SEPARATOR} in a sentence, which is kept for the "
                    "boundaries of sentences; replace it"
                )
