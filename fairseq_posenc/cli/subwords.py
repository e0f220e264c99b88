"""The commands that learn, apply and join subwords."""

import argparse
from typing import Any

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_commands, at_least
from fairseq_posenc.cli.text import (
    TEXTS,
    add_texts,
    add_words,
    map_texts,
    text_from,
)
from fairseq_posenc.text.subwords import SUBWORD_FILES, SUBWORDS

LEARN = """\
Learn subwords from texts, which are read as a stream.

    fairseq-posenc learn-subwords subword-nmt --operations 32000 codes train.tok.en train.tok.de
    fairseq-posenc learn-subwords sentencepiece --vocabulary-size 8000 model train.en train.de

FILE is what `fairseq-posenc apply-subwords` and `pack --subword-file` take."""
LEARN_SUBWORD_NMT = """\
Learn merges of characters in words, jointly from all texts.

Words are counted first, so memory grows with the number of different words, and merges do not
depend on the order of the text. With --learn-from, they are learned from the most frequent words
only."""
LEARN_SENTENCEPIECE = """\
Learn a model of SentencePiece from lines that are drawn with a fixed seed.

Memory grows with these lines, not with the text. Lines of more than 4,192 bytes are left out."""
LEARN_BYTE_BPE = """\
Learn byte-level byte-pair encoding (Radford et al. 2019), as RoBERTa's section 4.4 uses it.

Symbols are of bytes, so no text has unknown ones; a space is part of the word after it. FILE
becomes a folder with tokenizer.json and tokenizer_config.json, which `fairseq-posenc tokenize` and
the library transformers read; it is new, or has nothing but these two. The vocabulary is N symbols
beside the five special ones, the bytes among them."""
LEARN_MARKED_WORDS = """\
Learn a list of Chinese words from texts with spaces between words, as `tokenize jieba` writes them.

The vocabulary has as many symbols as --vocabulary-size says: the characters that make up 99.99 % of
the text, and the most frequent words. With --level character, no words of more than one character.
Other words become their characters, all but the first with the mark ##."""
LEARN_MARKED_PIECES = """\
Learn merges from letters and digits that are not Chinese, for `apply-subwords marked-pieces`.

The texts have spaces between words, as `tokenize jieba` writes them. Each Chinese character and
each sign becomes a symbol, the rest pieces, and all of a word but the first have the mark ##."""
APPLY = f"""\
Split texts into the symbols of a model.

    fairseq-posenc apply-subwords subword-nmt codes train.tok.de train.bpe.de
    fairseq-posenc apply-subwords marked-words words.txt --tokenizer jieba train.zh train.pieces
    echo a prompt | fairseq-posenc apply-subwords text8 - -

With --tokenizer, INPUT is raw text, which is split into words before; the flags are those of
`pack`. The kinds text8, enwik8 and none have no FILE. The kind `like` is that of a data folder, in
the place of FILE, as a recipe has recorded it there; INPUT is raw text.

{TEXTS}"""
JOIN = f"""\
Join the symbols of a model to words, separated by spaces; the inverse of apply-subwords.

    fairseq-posenc join-subwords sentencepiece model output.pieces output.txt

{TEXTS}"""


def _add_learned(parser: argparse.ArgumentParser, size: int) -> None:
    """Declare the file to write, the texts and the size of the vocabulary."""
    add = parser.add_argument
    shown = f"number of symbols ({size})" if size else "number of symbols, merges and characters"
    add("--vocabulary-size", type=int, default=size or None, metavar="N", help=shown)
    add("file", metavar="FILE", help="the file or folder to write")
    add("texts", nargs="+", metavar="INPUT", help="a text")


def add_subword_nmt(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``learn-subwords subword-nmt``."""
    parser.add_argument("--operations", type=int, metavar="N", help="number of merges (32000)")
    parser.add_argument(
        "--learn-from", type=int, metavar="N", help="learn from the N most frequent words (all)"
    )
    _add_learned(parser, 0)


def run_subword_nmt(args: argparse.Namespace) -> None:
    """Learn merges of words."""
    _learn_merges(args, str.split)


def run_marked_pieces(args: argparse.Namespace) -> None:
    """Learn merges of letters and digits that are not Chinese."""
    from fairseq_posenc.text.subwords import latin_parts

    _learn_merges(args, latin_parts)


def _learn_merges(args: argparse.Namespace, parts: Any) -> None:
    from fairseq_posenc.text.learning import learn_merges

    at_least(args, operations=1, learn_from=1)
    if args.operations is not None and args.vocabulary_size is not None:
        raise UsageError(f"--operations {args.operations}: give it or --vocabulary-size, not both")
    if args.vocabulary_size is None:
        args.operations = args.operations or 32000
    size = (args.operations, args.vocabulary_size, args.learn_from)
    learn_merges(args.file, args.texts, *size, parts)


def _add_coverage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--character-coverage",
        type=float,
        default=0.9999,
        metavar="X",
        help="part of the text whose characters have symbols (0.9999)",
    )


def _check_coverage(args: argparse.Namespace) -> None:
    at_least(args, vocabulary_size=1, learn_from=1)
    if not 0.9 <= args.character_coverage <= 1:
        raise UsageError(f"--character-coverage {args.character_coverage}: expected 0.9 to 1")


def add_sentencepiece(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``learn-subwords sentencepiece``."""
    add = parser.add_argument
    add("--type", choices=("unigram", "bpe"), default="unigram", help="(unigram)")
    add("--byte-fallback", action="store_true", help="write unknown characters as bytes")
    add("--learn-from", type=int, default=1000000, metavar="N", help="lines to use (1000000)")
    _add_coverage(parser)
    _add_learned(parser, 8000)


def run_sentencepiece(args: argparse.Namespace) -> None:
    """Learn a model of SentencePiece."""
    from fairseq_posenc.text.learning import learn_sentencepiece

    _check_coverage(args)
    learn_sentencepiece(
        args.file,
        args.texts,
        args.vocabulary_size,
        args.learn_from,
        model_type=args.type,
        character_coverage=args.character_coverage,
        byte_fallback=args.byte_fallback,
    )


def add_byte_bpe(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``learn-subwords byte-bpe``."""
    parser.add_argument("--lowercase", action="store_true", help="the tokenizer lower-cases text")
    _add_learned(parser, 50000)


def run_byte_bpe(args: argparse.Namespace) -> None:
    """Learn byte-level BPE."""
    from fairseq_posenc.text.learning import learn_byte_bpe

    learn_byte_bpe(args.file, args.texts, args.vocabulary_size, args.lowercase)


def add_marked_words(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``learn-subwords marked-words``."""
    parser.add_argument("--level", choices=("word", "character"), default="word", help="(word)")
    _add_coverage(parser)
    _add_learned(parser, 50000)


def run_marked_words(args: argparse.Namespace) -> None:
    """Learn a list of words."""
    from fairseq_posenc.text.learning import learn_words

    _check_coverage(args)
    learn_words(args.file, args.texts, args.vocabulary_size, args.level, args.character_coverage)


_LEARN = (
    ("subword-nmt", "merges of characters", LEARN_SUBWORD_NMT, add_subword_nmt, run_subword_nmt),
    ("sentencepiece", "pieces", LEARN_SENTENCEPIECE, add_sentencepiece, run_sentencepiece),
    ("byte-bpe", "merges of bytes", LEARN_BYTE_BPE, add_byte_bpe, run_byte_bpe),
    ("marked-words", "Chinese words", LEARN_MARKED_WORDS, add_marked_words, run_marked_words),
    (
        "marked-pieces",
        "merges, for Chinese characters and pieces",
        LEARN_MARKED_PIECES,
        add_subword_nmt,
        run_marked_pieces,
    ),
)


def add_learn(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of subwords to learn."""
    add_commands(parser, [Command(*entry) for entry in _LEARN], "KIND")


def _add_kinds(parser: argparse.ArgumentParser, join: bool) -> None:
    """Declare the kinds of subwords, and the arguments of each."""
    kinds = parser.add_subparsers(metavar="KIND", required=True, dest="subwords")
    for kind in SUBWORDS if join else (*SUBWORDS, "like"):
        of_kind = kinds.add_parser(
            kind,
            description=parser.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        of_kind.set_defaults(subword_file=None, source_lang=None)
        if kind == "like":
            of_kind.set_defaults(subwords="none")
            of_kind.add_argument("text_of", metavar="DIR", help="a data folder of a recipe")
        elif SUBWORD_FILES[kind] is not None:
            of_kind.add_argument("subword_file", metavar="FILE", help="what the kind is split by")
        if not join:
            add_words(of_kind, None)
            of_kind.add_argument("--source-lang", metavar="LANG", help="language, for moses (en)")
        add_texts(of_kind)


def add_apply(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``apply-subwords``."""
    _add_kinds(parser, join=False)


def run_apply(args: argparse.Namespace) -> None:
    """Write the symbols."""
    from fairseq_posenc.text.preparation import splitter

    map_texts(args, splitter, text_from(args))


def add_join(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``join-subwords``."""
    _add_kinds(parser, join=True)


def run_join(args: argparse.Namespace) -> None:
    """Write the words."""
    from fairseq_posenc.text.preparation import Text, tokens_joiner

    map_texts(args, tokens_joiner, Text(subwords=args.subwords, subword_file=args.subword_file))


COMMANDS = (
    Command("learn-subwords", "learn subwords from texts", LEARN, add_learn, None),
    Command("apply-subwords", "split texts into a model's symbols", APPLY, add_apply, run_apply),
    Command("join-subwords", "join a model's symbols to words", JOIN, add_join, run_join),
)
