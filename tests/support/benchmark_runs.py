"""Tiny entries of ``fairseq-posenc benchmark``."""

from fairseq_posenc.benchmark.checks import complete
from fairseq_posenc.benchmark.translation import TranslationSubject
from fairseq_posenc.cli import get_parser

SMALL = [
    *("--size", "tiny", "--layers", "1", "--vocabulary", "50", "--batch", "3"),
    *("--length", "9", "7", "--repeat", "3", "--threads", "1"),
]


def settings(*flags):
    args = get_parser().parse_args(["benchmark", *SMALL, *flags])
    complete(args)
    return args


def subject(entry, *flags):
    return TranslationSubject(entry, settings(*flags))
