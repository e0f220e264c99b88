"""Split Chinese words into symbols; all symbols of a word after the first begin with the mark ##.

    python marked.py words jieba|spaces WORKERS < TEXT > WORDS  separate words by spaces
    python marked.py others < WORDS > PARTS                 the text from which merges are learned
    python marked.py choose SIZE < WORDS > LIST             frequent words; SIZE includes characters
    python marked.py split CODES|LIST < WORDS > SYMBOLS

CODES has the merges of subword-nmt, which split text of other scripts; each Chinese character or
sign is a symbol. A LIST has words, which become symbols; other words are split into characters.
Model folders call these two ways marked-pieces and marked-words. If LOWERCASE is set in the
environment, words are lower-cased.
"""

import os
import re
import sys
from collections import Counter
from functools import lru_cache
from itertools import accumulate
from multiprocessing import Pool
from typing import Callable, Iterator, List

MARK = "##"
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: A Chinese character, a run of letters and digits of other scripts, or any other sign.
PARTS = re.compile(f"[{HAN}]|[^\\W_{HAN}]+|\\S")
COVERAGE = 0.9999  # share of the text that the kept characters cover
RESERVED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def lines() -> Iterator[str]:
    """The lines of standard input that are not blank."""
    return filter(str.strip, (line.decode() for line in sys.stdin.buffer))


def cut(line: str) -> str:
    """The words of a line in jieba's accurate mode, separated by spaces."""
    import jieba

    jieba.setLogLevel("ERROR")
    return " ".join(jieba.cut(line))


def words(segmenter: str, workers: str) -> Iterator[str]:
    """The words of each line of standard input, separated by spaces."""
    with Pool(int(workers)) as pool:
        found = pool.imap(cut, lines(), 200) if segmenter == "jieba" else lines()
        for line in found:
            line = line.lower() if os.environ.get("LOWERCASE") else line
            yield " ".join(line.split())


def others() -> Iterator[str]:
    """The runs of two or more letters or digits in all words, from which merges are learned."""
    for line in lines():
        yield from (part for part in PARTS.findall(line) if len(part) > 1)


def characters(word: str) -> List[str]:
    """The characters of a word; all but the first are marked."""
    return [word[0], *(MARK + character for character in word[1:])]


def by_frequency(counts: "Counter[str]") -> List[str]:
    """Symbols by falling frequency, and in alphabetical order if equally frequent."""
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))


def choose(size: str) -> Iterator[str]:
    """The most frequent words, as many as fit in *size* symbols beside the frequent characters."""
    counts = Counter(word for line in lines() for word in line.split())
    symbols: Counter[str] = Counter()
    for word, count in counts.items():
        for symbol in characters(word):
            symbols[symbol] += count
    needed = COVERAGE * sum(symbols.values())
    sums = accumulate(symbols[symbol] for symbol in by_frequency(symbols))
    kept = 1 + sum(total < needed for total in sums)
    if kept >= int(size):
        sys.exit(f"SYMBOLS={size}: leaves no room for words beside {kept} characters; raise it")
    for word in list(counts):
        if len(word) < 2 or word.startswith(MARK) or word in RESERVED:
            del counts[word]
    yield from by_frequency(counts)[: int(size) - kept]


def splitter(path: str) -> Callable[[str], List[str]]:
    """A function that splits a word into symbols by the CODES or the LIST at *path*."""
    with open(path, encoding="utf-8") as stream:
        first = stream.readline()
        if not first.startswith("#version"):
            known = {first.rstrip("\n"), *stream.read().split("\n")}
            return lambda word: [word] if word in known else characters(word)
    from subword_nmt.apply_bpe import BPE

    with open(path, encoding="utf-8") as stream:
        merges = BPE(stream)

    def pieces(word: str) -> List[str]:
        found: List[str] = []
        for part in PARTS.findall(word):
            pieces = [part] if len(part) == 1 else merges.process_line(part).split()
            found += [re.sub("@@$", "", piece) for piece in pieces]
        return found[:1] + [MARK + piece for piece in found[1:]]

    return pieces


def split(path: str) -> Iterator[str]:
    """The symbols of each line of standard input, separated by spaces."""
    symbols_of = lru_cache(1000000)(splitter(path))
    for line in lines():
        yield " ".join(symbol for word in line.split() for symbol in symbols_of(word))


COMMANDS = {"words": words, "others": others, "choose": choose, "split": split}

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    for made in COMMANDS[sys.argv[1]](*sys.argv[2:]):
        sys.stdout.buffer.write(made.encode() + b"\n")
