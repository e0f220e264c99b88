"""The commands that prepare text, and the flags that say how a model's text was prepared."""

import argparse
import os
import sys
from typing import Any, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import argument, at_least, command, number, place, several, switch
from fairseq_posenc.exchange.huggingface.tokenizer import RESERVED
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.subwords import RAW, SUBWORD_FILES, SUBWORDS
from fairseq_posenc.serving.words import TOKENIZERS
from fairseq_posenc.text.commands import recorded

TEXTS = "Texts are UTF-8, plain or compressed (.gz, .bz2, .xz); - is standard input or output."


class _Instead(argparse.Action):
    """A flag that is enough without texts."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Optional[str] = None
    ) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions:
            action.required = action.required and action.dest != "texts"


def words(parser: argparse.ArgumentParser, default: Optional[str] = "none") -> None:
    """Declare how words were split; with None as the default, the text is split already."""
    add, shown = parser.add_argument, default or "the text is split already"
    add("--tokenizer", choices=TOKENIZERS, default=default, help=f"how words were split ({shown})")
    add("--dash-splits", action="store_true", help="Moses split hyphenated words: rich @-@ text")
    add("--lowercase", action="store_true", help="text was lower-cased")


#: The arguments that say how the text of a model was prepared.
prepared_text = several(
    words,
    argument(
        "--subwords", choices=SUBWORDS, default="none", help="how words were split further (none)"
    ),
    argument(
        "--subword-file",
        metavar="FILE",
        help="merges, model of SentencePiece, or folder of a tokenizer of transformers",
    ),
    argument(
        "--text-of",
        metavar="DIR",
        help="instead of these flags: as the folder of a packed model, or of data, says it",
    ),
)


def text_from(args: argparse.Namespace, needed: bool = True) -> Text:
    """The preparation that the arguments say, with the path of the subwords.

    Args:
        needed: whether the folder of ``--text-of`` has to say it; otherwise, text is split at
            spaces.

    Raises:
        UsageError: naming the flag that does not fit to the others.
    """
    given = Text(
        args.source_lang,
        vars(args).get("target_lang"),
        args.tokenizer or "none",
        args.dash_splits,
        args.subwords,
        args.subword_file,
        args.lowercase,
        vars(args).get("target_subword_file"),
    )
    if vars(args).get("text_of") is not None:
        return _recorded(args.text_of, given, needed)
    if (SUBWORD_FILES[given.subwords] is None) != (given.subword_file is None):
        with_file = [kind for kind, file in SUBWORD_FILES.items() if file is not None]
        raise UsageError(
            f"--subwords {given.subwords}: give one of {', '.join(with_file)} with --subword-file, "
            "or another without"
        )
    if given.dash_splits and given.tokenizer != "moses":
        raise UsageError("--dash-splits: has no effect without --tokenizer moses; drop it")
    if given.subwords in RAW and (given.tokenizer, given.lowercase) != ("none", False):
        raise UsageError(
            f"--subwords {given.subwords}: takes the text as it is; drop --tokenizer and "
            "--lowercase"
        )
    return given


def _packed(folder: str) -> Optional[Text]:
    """The preparation of a model folder, with the paths of its subwords; None if it is none."""
    from fairseq_posenc.serving.model_folder import SETTINGS, read_model_folder

    if not os.path.isfile(os.path.join(folder, SETTINGS)):
        return None
    text = read_model_folder(folder, "--text-of").text
    both = (text.subword_file, text.target_subword_file)
    source, target = (name and os.path.join(folder, name) for name in both)
    return text._replace(subword_file=source, target_subword_file=target)


def _recorded(folder: str, given: Text, needed: bool) -> Text:
    """The preparation that *folder* records, with the languages of the flags."""
    languages = Text(source_lang=given.source_lang, target_lang=given.target_lang)
    if given != languages:
        raise UsageError(f"--text-of {folder}: says how text was prepared; drop the other flags")
    found = _packed(folder) or recorded(folder)
    if found is None:
        message = f"{folder}: does not say how text was split"
        if needed:
            raise UsageError(f"{message}; give the data-bin folder that a recipe made")
        print(f"{message}; the model folder will split it at spaces", file=sys.stderr)
        return languages
    return found._replace(
        source_lang=given.source_lang or found.source_lang, target_lang=given.target_lang
    )


def texts(parser: argparse.ArgumentParser) -> None:
    """Declare the texts, and the number of processes."""
    add, workers = parser.add_argument, os.environ.get("WORKERS", "1")
    shown = "processes (default: the environment's WORKERS, or 1)"
    add("--workers", metavar="N", default=workers, help=shown)
    add("texts", nargs="+", metavar="INPUT OUTPUT", help="texts, and files to write")


def map_texts(args: argparse.Namespace, make: Any, *arguments: Any) -> None:
    """Map the lines of the texts; see :func:`fairseq_posenc.text.parallel.map_texts`."""
    from fairseq_posenc.text import parallel

    if not args.workers.isdecimal() or int(args.workers) < 1:
        raise UsageError(f"--workers {args.workers}: expected a whole number above 0")
    parallel.map_texts(make, arguments, args.texts or [], int(args.workers))


@command(
    "tokenize",
    "split text into words or symbols",
    place("HOW", "moses, jieba, none, or a folder with a tokenizer's files"),
    argument("--lang", metavar="LANG", help="two-letter code of the language, for moses"),
    switch("--dash-splits", "split hyphenated words: rich @-@ text"),
    switch("--lowercase", "lower-case the text"),
    argument(
        "--dictionary", metavar="FILE", action=_Instead, help="write a folder's symbols as dict.txt"
    ),
    texts,
    more=TEXTS,
)
def tokenize(args: argparse.Namespace) -> None:
    """Split text into words, or into symbols as the tokenizer of a model of transformers does.

        fairseq-posenc tokenize moses --lang de --dash-splits train.de train.tok.de
        fairseq-posenc tokenize jieba --lowercase train.zh train.words.zh
        fairseq-posenc tokenize roformer_chinese_base train.txt train.pieces
        fairseq-posenc tokenize roformer_chinese_base --dictionary dict.txt

    HOW is moses: punctuation is normalised, and words are split as Moses does; jieba: Chinese
    words; or none: words are separated by spaces already. Or HOW is a folder with vocab.txt or
    tokenizer.json, as save_pretrained writes them, and perhaps tokenizer_config.json: WordPiece,
    RoFormer's words of jieba, SentencePiece, byte-level BPE. Its symbols are for fairseq-preprocess
    --only-source --srcdict with the dict.txt that `import` or --dictionary writes: the two are the
    same. Special symbols get fairseq's names, [UNK] <unk> and so on; "[SEP]" in a text is text.
    """
    from fairseq_posenc.basics.lines import write_text
    from fairseq_posenc.exchange.dictionary import dictionary
    from fairseq_posenc.text import commands

    given = {"--lang": args.lang, "--dash-splits": args.dash_splits}
    if args.how != "moses":
        for flag in filter(given.get, given):
            raise UsageError(f"{flag}: has no effect on {args.how}; it is for moses")
    elif args.lang is None:
        raise UsageError("tokenize moses: give --lang, the language of the text")
    if args.how in TOKENIZERS:
        if args.dictionary is not None:
            raise UsageError(f"--dictionary: {args.how} has no symbols of its own; drop it")
        settings = (args.how, args.lang, args.dash_splits, args.lowercase)
        map_texts(args, commands.word_splitter, *settings)
        return
    if args.lowercase:
        raise UsageError(f"--lowercase: the tokenizer in {args.how} says so itself; drop it")
    if args.texts:
        map_texts(args, commands.symbol_splitter, args.how)
    if args.dictionary is not None:
        content = dictionary(args.how)
        with write_text(args.dictionary, "--dictionary") as stream:
            stream.write(content)


@command(
    "detokenize",
    "restore text from Moses' words",
    argument("--lang", required=True, metavar="LANG", help="two-letter code"),
    texts,
    more=TEXTS,
)
def detokenize(args: argparse.Namespace) -> None:
    """Restore plain text from words that Moses split.

    fairseq-posenc detokenize --lang de output.tok.de output.de
    """
    from fairseq_posenc.text.commands import word_joiner

    map_texts(args, word_joiner, args.lang)


@command(
    "documents",
    "write the documents of a text",
    argument(
        "--format",
        choices=("blank-lines", "lines", "wikitext", "running"),
        default="blank-lines",
        help="how INPUT separates documents (blank-lines)",
    ),
    switch("--lowercase", "lower-case the text"),
    switch("--one-line", "write each document on one line"),
    place("INPUT"),
    place("OUTPUT"),
)
def documents(args: argparse.Namespace) -> None:
    """Write the documents of a text, a sentence or paragraph a line, with blank lines between them.

        fairseq-posenc documents --format wikitext --lowercase wiki.train.tokens train.txt

    The format of INPUT is blank-lines: they separate documents; lines: each line is a document;
    wikitext: a document starts at ` = Heading = `, numbers and hyphenated words are joined (`role
    @-@ playing`), and `<unk>` becomes `unk`; or running: as blank-lines, and indented lines stay
    so; but a name that ends in .jsonl has a document a line, {"text": "..."}, as OpenWebText2 and
    the Pile are published.
    """
    from fairseq_posenc.text.corpus import write_documents

    write_documents(args.input, args.output, args.format, args.lowercase, args.one_line)


@command(
    "fold",
    "break lines of too many tokens",
    number("--max-tokens", "most tokens in a line", 510),
    argument(
        "--word-start",
        default="",
        metavar="MARK",
        help="how tokens that begin a word begin (others are marked, by @@ or ##)",
    ),
    texts,
)
def fold(args: argparse.Namespace) -> None:
    """Break lines of more than N tokens, at the end of a sentence where possible.

        fairseq-posenc fold --max-tokens 510 INPUT OUTPUT

    `--sample-break-mode complete` packs whole lines into a sample and drops lines longer than a
    sample. Give the text that the model reads, after BPE. Blank lines are kept.
    """
    from fairseq_posenc.text.corpus import folder

    at_least(args, max_tokens=1)
    map_texts(args, folder, args.max_tokens, args.word_start)


@command(
    "clean",
    "drop unsuitable sentence pairs",
    number("--min-length", "least tokens on a side", 1),
    number("--max-length", "most tokens on a side", 250),
    number("--ratio", "largest ratio of the lengths of the two sides", 1.5, float),
    *map(place, ("SOURCE", "TARGET", "NEW_SOURCE", "NEW_TARGET")),
)
def clean(args: argparse.Namespace) -> None:
    """Drop sentence pairs that are empty, too long, or too unequal in length.

        fairseq-posenc clean --max-length 250 --ratio 1.5 SOURCE TARGET NEW_SOURCE NEW_TARGET

    Lengths count tokens separated by spaces: give the text that the model reads, after BPE.
    """
    from fairseq_posenc.text.corpus import clean_pairs

    at_least(args, min_length=1, ratio=1)
    if args.max_length < args.min_length:
        raise UsageError(f"--max-length {args.max_length}: below --min-length")
    pairs = ((args.source, args.target), (args.new_source, args.new_target))
    clean_pairs(*pairs, args.min_length, args.max_length, args.ratio)


@command(
    "check-pairs",
    "refuse texts not parallel",
    number("--longest", "refuse lines of more tokens, split at spaces"),
    place("SOURCE"),
    place("TARGET"),
    argument("copies", nargs="*", metavar="NEW_SOURCE NEW_TARGET"),
)
def check_pairs(args: argparse.Namespace) -> None:
    """Check that two texts are parallel, before hours of work on them; copy them on request.

        fairseq-posenc check-pairs --longest 1022 SOURCE TARGET [NEW_SOURCE NEW_TARGET]

    Both must be UTF-8 and have the same number of lines, at least one. The copies are plain text,
    even of compressed files.
    """
    from fairseq_posenc.text import corpus

    if len(args.copies) not in (0, 2):
        raise UsageError(f"check-pairs {args.source}: give two copies or none; see --help")
    corpus.check_pairs((args.source, args.target), args.copies, args.longest)


@command("check-plain", "refuse compressed texts", argument("files", nargs="+", metavar="FILE"))
def check_plain(args: argparse.Namespace) -> None:
    """Refuse texts that are compressed or begin with a byte-order mark.

    fairseq does not notice either.
    """
    from fairseq_posenc.basics import lines

    for path in args.files:
        lines.check_plain(path)


@command(
    "check-text",
    "refuse texts of other subwords than a dictionary's",
    place("DICT", "dict.txt of the model"),
    argument("texts", metavar="TEXT", nargs="+", help="a text in symbols"),
)
def check_text(args: argparse.Namespace) -> None:
    """Refuse texts in symbols that a dictionary does not have.

        fairseq-posenc check-text data-bin/dict.txt train.pieces valid.pieces

    If more than half of the symbols of a text are unknown, it was split into subwords of another
    kind, or is in another language. Little but <unk> would be left of it after fairseq-preprocess.
    """
    from fairseq_posenc.basics.lines import read_lines
    from fairseq_posenc.text.corpus import check_known

    known = {line.split(" ", 1)[0] for line in read_lines(args.dict)}.union(RESERVED - {"<unk>"})
    advice = f"split the text as that of {args.dict} was, by the subwords learned with it"
    for path in args.texts:
        check_known(map(str.split, read_lines(path)), known.__contains__, str(path), advice)


COMMANDS = (tokenize, detokenize, documents, fold, clean, check_pairs, check_plain, check_text)
