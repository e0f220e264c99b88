"""Tiny entries of ``fairseq-posenc benchmark``."""

from fairseq_posenc.benchmark.models import TranslationSubject
from fairseq_posenc.benchmark.run import complete
from fairseq_posenc.cli import parse

SMALL = [
    *("--size", "tiny", "--layers", "1", "--vocabulary", "50", "--batch", "3"),
    *("--length", "9", "7", "--repeat", "3", "--threads", "1"),
]


def completed(*flags):
    """The parsed and completed flags of the command."""
    _, args = parse(["benchmark", *flags])
    complete(args)
    return args


def settings(*flags):
    return completed(*SMALL, *flags)


def subject(entry, *flags, kind=TranslationSubject):
    return kind(entry, settings(*flags))
