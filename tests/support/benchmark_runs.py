"""Tiny entries of ``scripts/benchmark/time_models.py``."""

from subjects import TranslationSubject
from time_models import cases, get_parser

SMALL = [
    *("--size", "tiny", "--layers", "1", "--vocabulary", "50", "--batch", "3"),
    *("--length", "9", "7", "--repeat", "3", "--threads", "1", "--device", "cpu"),
]


def settings(job, *flags):
    """What the script makes of the flags, for one table."""
    return cases(get_parser().parse_args(["--jobs", job, *SMALL, *flags]))[0]


def subject(entry, *flags, kind=TranslationSubject, job="training"):
    """A model, of the sizes of :data:`SMALL` unless flags say otherwise."""
    return kind(entry, job, settings(job, *flags))
