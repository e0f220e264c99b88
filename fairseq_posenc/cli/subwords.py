"""The commands that learn, apply and join subwords."""

import argparse
from typing import Any

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli import text
from fairseq_posenc.cli.command import argument, at_least, command, group, number, several, switch
from fairseq_posenc.serving.subwords import SUBWORD_FILES, SUBWORDS

_FILE = argument("file", metavar="FILE", help="the file or folder to write")
_TEXTS = argument("texts", nargs="+", metavar="INPUT", help="a text")
_COVERAGE = number(
    "--character-coverage", "part of the text whose characters have symbols", 0.9999, float
)
_MERGES = several(
    number("--operations", "number of merges (32000)"),
    number("--learn-from", "learn from the N most frequent words (all)"),
    number("--vocabulary-size", "number of symbols, merges and characters"),
    _FILE,
    _TEXTS,
)


@command("subword-nmt", "merges of characters", _MERGES)
def learn_subword_nmt(args: argparse.Namespace) -> None:
    """Learn merges of characters in words, jointly from all texts.

    Words are counted first, so memory grows with the number of different words, and merges do not
    depend on the order of the text. With --learn-from, they are learned from the most frequent
    words only.
    """
    _learn_merges(args, str.split)


@command("marked-pieces", "merges, for Chinese characters and pieces", _MERGES)
def learn_marked_pieces(args: argparse.Namespace) -> None:
    """Learn merges from letters and digits that are not Chinese.

    They are for `apply-subwords marked-pieces`. The texts have spaces between words, as `tokenize
    jieba` writes them. Each Chinese character and each sign becomes a symbol, the rest is split
    into pieces, and all symbols of a word but its first have the mark ##."""
    from fairseq_posenc.serving.subwords import latin_parts

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


def _check_coverage(args: argparse.Namespace) -> None:
    at_least(args, vocabulary_size=1, learn_from=1)
    if not 0.9 <= args.character_coverage <= 1:
        raise UsageError(f"--character-coverage {args.character_coverage}: expected 0.9 to 1")


@command(
    "sentencepiece",
    "pieces",
    argument(
        "--type", choices=("unigram", "bpe"), default="unigram", help="kind of pieces (unigram)"
    ),
    switch("--byte-fallback", "write unknown characters as bytes"),
    number("--learn-from", "lines to use", 1000000),
    _COVERAGE,
    number("--vocabulary-size", "number of symbols", 8000),
    _FILE,
    _TEXTS,
)
def learn_sentencepiece(args: argparse.Namespace) -> None:
    """Learn a model of SentencePiece from lines that are drawn with a fixed seed.

    Memory grows with these lines, not with the text. Lines of more than 4,192 bytes are left out.
    """
    from fairseq_posenc.text import learning

    _check_coverage(args)
    learning.learn_sentencepiece(
        args.file,
        args.texts,
        args.vocabulary_size,
        args.learn_from,
        model_type=args.type,
        character_coverage=args.character_coverage,
        byte_fallback=args.byte_fallback,
    )


@command(
    "byte-bpe",
    "merges of bytes",
    switch("--lowercase", "the tokenizer lower-cases text"),
    number("--vocabulary-size", "number of symbols", 50000),
    _FILE,
    _TEXTS,
)
def learn_byte_bpe(args: argparse.Namespace) -> None:
    """Learn byte-level byte-pair encoding (Radford et al. 2019), as RoBERTa's section 4.4 uses it.

    Symbols are of bytes, so no text has unknown ones; a space is part of the word after it. FILE
    becomes a folder with tokenizer.json and tokenizer_config.json, which `fairseq-posenc tokenize`
    and the library transformers read; it is new, or has nothing but these two. The vocabulary is N
    symbols beside the five special ones, the bytes among them.
    """
    from fairseq_posenc.text import learning

    learning.learn_byte_bpe(args.file, args.texts, args.vocabulary_size, args.lowercase)


@command(
    "marked-words",
    "Chinese words",
    argument(
        "--level", choices=("word", "character"), default="word", help="what a symbol is (word)"
    ),
    _COVERAGE,
    number("--vocabulary-size", "number of symbols", 50000),
    _FILE,
    _TEXTS,
)
def learn_marked_words(args: argparse.Namespace) -> None:
    """Learn a list of Chinese words from texts with spaces between them.

    `tokenize jieba` writes such texts. The vocabulary has as many symbols as --vocabulary-size
    says: the characters that make up 99.99 % of the text, and the most frequent words. With --level
    character, no words of more than one character. Other words become their characters, all but the
    first with the mark ##.
    """
    from fairseq_posenc.text.learning import learn_words

    _check_coverage(args)
    learn_words(args.file, args.texts, args.vocabulary_size, args.level, args.character_coverage)


LEARN = """\
Learn subwords from texts, which are read as a stream.

    fairseq-posenc learn-subwords subword-nmt --operations 32000 codes train.tok.en train.tok.de
    fairseq-posenc learn-subwords sentencepiece --vocabulary-size 8000 model train.en train.de

FILE is what `fairseq-posenc apply-subwords` and `pack --subword-file` take."""


def _kinds(parser: argparse.ArgumentParser, join: bool) -> None:
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
            text.words(of_kind, None)
            of_kind.add_argument("--source-lang", metavar="LANG", help="language, for moses (en)")
        text.texts(of_kind)


@command(
    "apply-subwords",
    "split texts into a model's symbols",
    lambda parser: _kinds(parser, join=False),
    more=text.TEXTS,
)
def apply_subwords(args: argparse.Namespace) -> None:
    """Split texts into the symbols of a model.

        fairseq-posenc apply-subwords subword-nmt codes train.tok.de train.bpe.de
        fairseq-posenc apply-subwords marked-words words.txt --tokenizer jieba train.zh train.pieces
        echo a prompt | fairseq-posenc apply-subwords text8 - -

    With --tokenizer, INPUT is raw text, which is split into words before; the flags are those of
    `pack`. The kinds text8, enwik8 and none have no FILE. The kind `like` is that of a data folder,
    in the place of FILE, as a recipe has recorded it there; INPUT is raw text.
    """
    from fairseq_posenc.text.commands import splitter

    text.map_texts(args, splitter, text.text_from(args))


@command(
    "join-subwords",
    "join a model's symbols to words",
    lambda parser: _kinds(parser, join=True),
    more=text.TEXTS,
)
def join_subwords(args: argparse.Namespace) -> None:
    """Join the symbols of a model to words, separated by spaces; the inverse of apply-subwords.

    fairseq-posenc join-subwords sentencepiece model output.pieces output.txt
    """
    from fairseq_posenc.serving.preparation import Text
    from fairseq_posenc.text.commands import tokens_joiner

    kind = Text(subwords=args.subwords, subword_file=args.subword_file)
    text.map_texts(args, tokens_joiner, kind)


_LEARN = (
    learn_subword_nmt,
    learn_sentencepiece,
    learn_byte_bpe,
    learn_marked_words,
    learn_marked_pieces,
)
COMMANDS = (
    group("learn-subwords", "learn subwords from texts", LEARN, "KIND", _LEARN),
    apply_subwords,
    join_subwords,
)
