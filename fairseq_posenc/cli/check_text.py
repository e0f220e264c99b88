"""``fairseq-posenc check-text``."""

import argparse
from pathlib import Path

from fairseq_posenc.cli.command import Command

DESCRIPTION = """\
Refuse texts in symbols that a dictionary does not have.

    fairseq-posenc check-text data-bin/dict.txt train.pieces valid.pieces

If more than half of the symbols of a text are unknown, it was split into subwords of another kind,
or is in another language. Little but <unk> would be left of it after fairseq-preprocess."""
SPECIAL = ("<s>", "<pad>", "</s>")  # which fairseq has besides; <unk> stands for unknown symbols


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("dict", metavar="DICT", type=Path, help="dict.txt of the model")
    parser.add_argument("texts", metavar="TEXT", nargs="+", type=Path, help="a text in symbols")


def run(args: argparse.Namespace) -> None:
    """Check the texts."""
    from fairseq_posenc.basics.lines import read_lines
    from fairseq_posenc.text.unknown_tokens import check_known

    known = {line.split(" ", 1)[0] for line in read_lines(args.dict)}.union(SPECIAL)
    advice = f"split the text as that of {args.dict} was, by the subwords learned with it"
    for path in args.texts:
        check_known(map(str.split, read_lines(path)), known.__contains__, str(path), advice)


COMMAND = Command(
    "check-text",
    "refuse texts of other subwords than a dictionary's",
    DESCRIPTION,
    add_arguments,
    run,
)
