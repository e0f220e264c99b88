"""Texts as corpora: documents, lines that are not too long, and pairs of lines."""

import re
import sys
from collections import Counter
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import (
    between_none,
    read_json_lines,
    read_lines,
    read_pairs,
    write_text,
    write_texts,
)
from fairseq_posenc.basics.records import field
from fairseq_posenc.text.parallel import Function, each

Document = List[str]
TITLE = re.compile(r"= (?!=)(.*[^=\s]) =")
HEADING = re.compile(r"(?:= )+(.*?)(?: =)+")
ENDS = frozenset(".!?。！？")
CLOSING = frozenset(["&quot;", "&apos;", "'", '"', "”", "’", ")", "&#93;", "»"])


def by_blank_lines(
    lines: Iterable[str], strip: Callable[[str], str] = str.strip
) -> Iterator[Document]:
    """The documents of a text, separated by blank lines.

    Args:
        strip: takes the white space at the ends of a line away.
    """
    return between_none(strip(line) if line.strip() else None for line in lines)


def by_headings(lines: Iterable[str]) -> Iterator[Document]:
    """The documents of WikiText, each with its title as the first line.

    A document starts at `` = Heading = ``, not at `` = = Subheading = = ``.  Blank lines are
    ignored, numbers and hyphenated words joined (``role @-@ playing``), and ``<unk>`` becomes
    ``unk``.
    """
    document: Document = []
    for line in map(str.strip, lines):
        if TITLE.fullmatch(line) and document:
            yield document
            document = []
        line = HEADING.sub(r"\1", line) if HEADING.fullmatch(line) else line
        if line:
            document.append(re.sub(r" @([-,.])@ ", r"\1", line).replace("<unk>", "unk"))
    if document:
        yield document


def running(path: str) -> Iterator[Document]:
    """The documents of running text: JSON lines with a text each, or with blank lines between them.

    White space at the ends of lines is dropped, and blank lines within a document.

    Args:
        path: the file; a name that ends in .jsonl is JSON lines, ``{"text": "..."}``.

    Raises:
        UsageError: a line is no such object.
    """
    if not path.endswith(".jsonl"):
        yield from by_blank_lines(read_lines(path), str.rstrip)
        return
    for number, entry in read_json_lines(path):
        lines = field(entry, "text", str, f"{path}: line {number}").splitlines()
        yield [line.rstrip() for line in lines if line.strip()]


#: The documents of a file, by its form.
FORMATS: Dict[str, Callable[[str], Iterator[Document]]] = {
    "blank-lines": lambda path: by_blank_lines(read_lines(path)),
    "lines": lambda path: ([line.strip()] for line in read_lines(path) if line.strip()),
    "wikitext": lambda path: by_headings(read_lines(path)),
    "running": running,
}


def write_documents(
    source: str, target: str, form: str, lowercase: bool = False, one_line: bool = False
) -> None:
    """Write the documents of a text, with exactly one blank line between them.

    Args:
        form: a key of :data:`FORMATS`.
        lowercase: whether to lower-case the text.
        one_line: write a document on one line, without blank lines between them.

    Raises:
        UsageError: the text has no documents.
    """
    documents = lines = 0
    with write_text(target) as stream:
        for document in filter(None, FORMATS[form](source)):
            document = [line.lower() for line in document] if lowercase else document
            if one_line:
                stream.write(" ".join(document) + "\n")
            else:
                stream.write("\n" * bool(documents) + "".join(line + "\n" for line in document))
            documents, lines = documents + 1, lines + len(document)
        if not documents:
            raise UsageError(f"{source}: contains no text")
    print(f"{source}: {documents} documents, {lines} lines", file=sys.stderr)


def _ends_sentence(tokens: Sequence[str], count: int) -> bool:
    """True if a sentence ends after the first *count* tokens."""
    if tokens[count] in CLOSING:
        return False
    while count > 1 and tokens[count - 1] in CLOSING:
        count -= 1
    return tokens[count - 1] in ENDS


def _inside_word(tokens: Sequence[str], count: int, word_start: str) -> bool:
    """True if the first *count* tokens end within a word."""
    if word_start:
        return not tokens[count].startswith(word_start)
    return tokens[count - 1].endswith("@@") or tokens[count].startswith("##")


def fold(tokens: List[str], limit: int, word_start: str = "") -> List[List[str]]:
    """Cut a line into pieces of at most *limit* tokens.

    A piece ends after the last sentence that fits, otherwise after the last word that fits,
    otherwise within a word.

    Args:
        tokens: subwords; ``@@`` marks those that do not end a word, ``##`` those that do not
            begin one.
        limit: maximum number of tokens per piece.
        word_start: what tokens that begin a word begin with, instead of these marks.
    """
    found = []
    bare = [token.replace(word_start, "") for token in tokens] if word_start else tokens
    while len(tokens) > limit:
        cuts = range(limit, 0, -1)
        sentences = (cut for cut in cuts if _ends_sentence(bare, cut))
        words = (cut for cut in cuts if not _inside_word(tokens, cut, word_start))
        cut = next(sentences, None) or next(words, limit)
        found.append(tokens[:cut])
        tokens, bare = tokens[cut:], bare[cut:]
    return [*found, tokens]


def folder(limit: int, word_start: str = "") -> Function:
    """The function that breaks lines into pieces, separated by line feeds; see :func:`fold`."""
    return each(lambda line: "\n".join(map(" ".join, fold(line.split(), limit, word_start))))


def verdict(source: str, target: str, min_length: int, max_length: int, ratio: float) -> str:
    """Why a pair is dropped, ``short``, ``long`` or ``ratio``, or ``kept``.

    Args:
        source: tokens separated by spaces.
        target: the same for the other side.
        min_length: minimum tokens per side.
        max_length: maximum tokens per side.
        ratio: maximum ratio of the longer to the shorter side.
    """
    one, two = len(source.split()), len(target.split())
    if min(one, two) < min_length:
        return "short"
    if max(one, two) > max_length:
        return "long"
    if max(one, two) > ratio * min(one, two):
        return "ratio"
    return "kept"


def clean_pairs(
    texts: Sequence[str], outputs: Sequence[str], min_length: int, max_length: int, ratio: float
) -> None:
    """Drop sentence pairs that are empty, too long or too unequal; see :func:`verdict`.

    Args:
        texts: the source and the target.
        min_length: minimum tokens per side.
        max_length: maximum tokens per side.
        ratio: maximum ratio of the longer to the shorter side.

    Raises:
        UsageError: no pair is left.
    """
    counts: Counter[str] = Counter()
    with write_texts(outputs) as (left, right):
        for source, target in read_pairs(texts[0], texts[1]):
            reason = verdict(source, target, min_length, max_length, ratio)
            counts[reason] += 1
            if reason == "kept":
                left.write(source + "\n")
                right.write(target + "\n")
        if not counts["kept"]:
            raise UsageError(f"{texts[0]}: none of {sum(counts.values())} pairs is left")
    print(
        f"kept {counts['kept']} of {sum(counts.values())} pairs; dropped {counts['short']} short, "
        f"{counts['long']} long, {counts['ratio']} by ratio",
        file=sys.stderr,
    )


def check_known(
    texts: Iterable[Sequence[str]], known: Callable[[str], bool], where: str, advice: str
) -> None:
    """Refuse texts most of whose tokens are unknown: subwords of another kind, or language.

    Args:
        texts: the tokens of each.
        known: whether the dictionary has a token.
        where: the texts, at the start of the message.
        advice: what to do about it.

    Raises:
        UsageError: more than half of the tokens are not in the dictionary.
    """
    counts = Counter(token for tokens in texts for token in tokens)
    unknown = Counter({token: n for token, n in counts.items() if not known(token)})
    share = sum(unknown.values()) / max(1, sum(counts.values()))
    if share > 0.5:
        examples = ", ".join(token for token, _ in unknown.most_common(3))
        raise UsageError(
            f"{where}: {share:.0%} of the tokens are not in the dictionary ({examples}); {advice}"
        )


def check_pairs(
    texts: Sequence[str], copies: Sequence[str] = (), longest: Optional[int] = None
) -> None:
    """Check that two texts are parallel, before hours of work on them, and copy them.

    Args:
        texts: the source and the target; UTF-8, with the same number of lines, at least one.
        copies: two files to write, plain text even of compressed files; or none.
        longest: most tokens, separated by spaces, that a line may have.

    Raises:
        UsageError: they are not parallel, or a line is longer.
    """
    number = 0
    with write_texts(copies) as streams:
        for number, pair in enumerate(read_pairs(texts[0], texts[1]), 1):
            for stream, line in zip(streams, pair):
                stream.write(line + "\n")
            for path, line in zip(texts, pair):
                if longest is not None and len(line.split()) > longest:
                    raise UsageError(
                        f"{path}: line {number}: {len(line.split())} tokens, more than {longest}"
                    )
        if not number:
            raise UsageError(f"{texts[0]} and {texts[1]}: are empty")
