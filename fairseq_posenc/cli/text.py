"""The arguments that say how text is split into the symbols of a model."""

import argparse

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.model_folder import RAW, SUBWORD_FILES, SUBWORDS, TOKENIZERS


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("--tokenizer", choices=TOKENIZERS, default="none", help="how words were split (none)")
    add("--dash-splits", action="store_true", help="Moses split hyphenated words: rich @-@ text")
    add("--subwords", choices=SUBWORDS, default="none", help="how words were split further (none)")
    add(
        "--subword-file",
        metavar="FILE",
        help="merges, model of SentencePiece, or folder of a tokenizer of transformers",
    )
    add("--lowercase", action="store_true", help="text was lower-cased")


def check_text_arguments(args: argparse.Namespace) -> None:
    """Check that the kind of subwords has the file that it needs, and its own words.

    Raises:
        UsageError: naming the flag.
    """
    if (SUBWORD_FILES[args.subwords] is None) != (args.subword_file is None):
        with_file = [kind for kind, file in SUBWORD_FILES.items() if file is not None]
        raise UsageError(
            f"--subwords {args.subwords}: give one of {', '.join(with_file)} with --subword-file, "
            "or another without"
        )
    if args.dash_splits and args.tokenizer != "moses":
        raise UsageError("--dash-splits: has no effect without --tokenizer moses; drop it")
    if args.subwords in RAW and (args.tokenizer, args.lowercase) != ("none", False):
        raise UsageError(
            f"--subwords {args.subwords}: takes the text as it is; drop --tokenizer and --lowercase"
        )
