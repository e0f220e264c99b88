"""Learning subwords from texts that are read as a stream."""

import heapq
import io
import itertools
import os
import random
import re
import shutil
import sys
from collections import Counter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import new_folder, replace_file
from fairseq_posenc.basics.lines import json_text, read_texts, write_text
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.exchange.huggingface.tokenizer import ROLES
from fairseq_posenc.serving.subwords import can_be_symbol, in_characters

SEED = 1  # seed of the choice of lines that SentencePiece learns from
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def count_words(
    paths: Sequence[str], parts: Callable[[str], Iterable[str]] = str.split
) -> "Counter[str]":
    """Count the words of several texts.

    Args:
        parts: the words of a line.

    Raises:
        UsageError: there are none.
    """
    words: Counter[str] = Counter()
    for line in read_texts(*paths):
        words.update(parts(line))
    if not words:
        raise UsageError("{}: no words to learn from".format(" ".join(paths)))
    return words


def learn_merges(
    codes: str,
    paths: Sequence[str],
    operations: Optional[int] = None,
    vocabulary_size: Optional[int] = None,
    most_frequent: Optional[int] = None,
    parts: Callable[[str], Iterable[str]] = str.split,
) -> None:
    """Learn merges by subword-nmt, which do not depend on the order of the text.

    A vocabulary of N symbols has N merges less one for each character of the text; a character
    counts once within words and once at their ends.  N is an upper bound of the symbols that
    fairseq-preprocess finds in the text, without its four special symbols.

    Args:
        operations: number of merges; fewer are learned where the text has no more.
        vocabulary_size: number of characters and merges together, instead.
        most_frequent: number of words to learn from; words as frequent as the last of them are
            taken in alphabetical order.
        parts: the words of a line.

    Raises:
        UsageError: the text does not give that many symbols, or no merge.
    """
    words = count_words(paths, parts)
    os.environ.setdefault("TQDM_MININTERVAL", "10")  # subword-nmt's progress would fill log files
    module = import_extra("subword_nmt.learn_bpe", "subwords of subword-nmt")
    if most_frequent is not None and most_frequent < len(words):
        print(f"learning from {most_frequent} of {len(words)} words", file=sys.stderr)
        ranked = heapq.nsmallest(most_frequent, words.items(), key=lambda item: (-item[1], item[0]))
        words = Counter(dict(ranked))
    if vocabulary_size is not None:
        characters = _count_characters(words)
        operations = vocabulary_size - characters
        if operations < 1:
            raise UsageError(
                f"--vocabulary-size {vocabulary_size}: the text has {characters} characters, "
                "within words and at their ends; give more"
            )
    assert operations is not None
    merges = io.StringIO()
    if any(len(word) > 1 for word in words):
        dictionary = io.StringIO("".join(f"{word} {count}\n" for word, count in words.items()))
        module.learn_bpe(dictionary, merges, operations, is_dict=True)
    found = max(merges.getvalue().count("\n") - 1, 0)
    if vocabulary_size is not None and found < operations:
        most = vocabulary_size - operations + found
        raise UsageError(f"--vocabulary-size {vocabulary_size}: the text gives no more than {most}")
    if not found:  # subword-nmt does not read codes without merges
        raise UsageError(
            "{}: no two characters stand together twice in a word, so there is nothing to merge; "
            "give more text, or other subwords".format(" ".join(paths))
        )
    with write_text(codes) as stream:
        stream.write(merges.getvalue())


def _count_characters(words: Iterable[str]) -> int:
    """The number of symbols before any merge: characters within words, and at their ends."""
    within: Set[str] = set().union(*(word[:-1] for word in words))
    return len(within) + len({word[-1] for word in words})


def draw_lines(lines: Iterable[str], count: int) -> List[str]:
    """Draw *count* of many lines, or take all of fewer, in a stream and with a fixed seed.

    SentencePiece's own draw differs from process to process.
    """
    draw, drawn = random.Random(SEED), []
    for number, line in enumerate(lines):
        if number < count:
            drawn.append(line)
            continue
        place = draw.randrange(number + 1)
        if place < count:
            drawn[place] = line
    return drawn


def learn_sentencepiece(
    model: str, paths: Sequence[str], size: int, learn_from: int, **settings: Any
) -> None:
    """Learn a model of SentencePiece from lines drawn with a fixed seed.

    Args:
        paths: the texts; lines of more than 4,192 bytes are left out.
        size: number of pieces.
        learn_from: number of lines.
        settings: ``model_type``, ``character_coverage`` and ``byte_fallback``, as SentencePiece
            takes them.

    Raises:
        UsageError: the text has no words, or does not give that many pieces.
    """
    sentencepiece = import_extra("sentencepiece", "subwords of sentencepiece")
    lines = (" ".join(line.split()) for line in read_texts(*paths))
    sentences = draw_lines(filter(None, lines), learn_from)
    if not sentences:
        raise UsageError("{}: no words to learn from".format(" ".join(paths)))
    os.makedirs(os.path.dirname(model) or os.curdir, exist_ok=True)
    with replace_file(model) as partial, open(partial, "wb") as stream:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=stream,
                vocab_size=size,
                input_sentence_size=learn_from,  # recorded in the model; all are taken
                shuffle_input_sentence=True,
                unk_id=0,  # the other special symbols are fairseq's
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                minloglevel=2,
                **settings,
            )
        except RuntimeError as error:
            raise UsageError(f"--vocabulary-size {size}: {_reason(str(error))}") from error


def _reason(message: str) -> str:
    """The error of SentencePiece's trainer, in one line."""
    most = re.search(r"value <= (\d+)", message)
    if most:
        return f"the text gives no more than {most.group(1)}"
    least = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if least:
        return f"the text has {least.group(1)} characters and special symbols; give more"
    return "SentencePiece stopped: " + " ".join(message.split())


def learn_byte_bpe(folder: str, paths: Sequence[str], size: int, lowercase: bool) -> None:
    """Learn byte-level byte-pair encoding (Radford et al. 2019) and write a tokenizer's folder.

    Symbols are of bytes, so no text has unknown ones; a space is part of the word after it.

    Args:
        folder: to write; new or empty, or with no other files than such a tokenizer's.
        size: number of symbols beside the special ones, the bytes among them.
        lowercase: whether the tokenizer lower-cases text before it splits it.

    Raises:
        UsageError: the folder has other files, or the text does not give that many symbols.
    """
    tokenizers = import_extra("tokenizers", "byte-level BPE")
    levels = import_extra("tokenizers.pre_tokenizers", "byte-level BPE")
    special: Dict[str, str] = {role: ours for ours, role, _ in ROLES}
    folder = os.path.realpath(folder)
    _refuse_others(folder)
    alphabet = levels.ByteLevel.alphabet()
    if size <= len(alphabet):
        raise UsageError(
            f"--vocabulary-size {size}: the bytes alone are {len(alphabet)}; give more"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    if lowercase:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = levels.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size + len(special),
        special_tokens=list(special.values()),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(filter(None, read_texts(*paths)), trainer)
    found = tokenizer.get_vocab_size() - len(special)
    if found < size:
        raise UsageError(f"--vocabulary-size {size}: the text gives no more than {found}")
    shutil.rmtree(folder, ignore_errors=True)
    with new_folder(folder) as part:
        tokenizer.save(os.path.join(part, TOKENIZER_FILES[0]))
        with write_text(os.path.join(part, TOKENIZER_FILES[1])) as stream:
            stream.write(json_text({"tokenizer_class": "PreTrainedTokenizerFast", **special}))


def _refuse_others(folder: str) -> None:
    """Refuse a folder that is there, unless it is empty or has just the files of a tokenizer."""
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: is no folder; give a new one")
    others = sorted(set(os.listdir(folder)) - set(TOKENIZER_FILES))
    if others:
        raise UsageError(
            f"{folder}: would be replaced, and there is {others[0]} in it; give a new folder"
        )


def most_frequent(counts: "Counter[str]") -> List[str]:
    """Symbols by falling frequency, those of the same frequency in order of their characters."""
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))


def choose_words(counts: "Counter[str]", size: int, level: str, coverage: float) -> List[str]:
    """The words of more than one character that a vocabulary of Chinese has.

    Args:
        counts: how often each word occurs.
        size: number of symbols: the characters and the most frequent words.
        level: word or character; the latter has no words.
        coverage: share of the text that the characters are to make up.

    Raises:
        UsageError: the characters alone are more symbols.
    """
    if level == "character":
        return []
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for symbol in in_characters(word):
            characters[symbol] += count
    needed = coverage * sum(characters.values())
    sums: Iterator[int] = itertools.accumulate(
        characters[symbol] for symbol in most_frequent(characters)
    )
    kept = 1 + sum(1 for total in sums if total < needed)
    if kept >= size:
        raise UsageError(
            f"--vocabulary-size {size}: the text has {kept} frequent characters, with and without "
            "mark; give more"
        )
    words: Counter[str] = Counter({w: n for w, n in counts.items() if can_be_symbol(w)})
    return most_frequent(words)[: size - kept]


def learn_words(path: str, texts: Sequence[str], size: int, level: str, coverage: float) -> None:
    """Write the list of words that :func:`choose_words` chooses from texts."""
    chosen = choose_words(count_words(texts), size, level, coverage)
    with write_text(path) as stream:
        stream.writelines(word + "\n" for word in chosen)
