"""Errors of argparse in fairseq's commands: flags of the plug-in beside a stock architecture."""

import argparse
from typing import Optional, Sequence

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.flags.usage import flags_of_parser, one_line
from fairseq_posenc.models import FAMILIES, family_of


def parse_error(message: str, parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The line that replaces an error of argparse and its usage.

    Args:
        message: what argparse says.
        parser: the parser of a command of fairseq.
        words: the command line.
    """
    ours = [flag_of(name) for name in plug_in_flags()]
    unknown = message.partition("unrecognized arguments: ")[2].split()
    given = [flag for flag in ours for word in unknown if word.partition("=")[0] == flag]
    arch = _value_of(("--arch", "-a"), words)
    if given and arch and family_of(arch) is None:
        instead = _instead_of(arch)
        use = f"give --arch {instead}, which is {arch} with this flag" if instead else "drop it"
        return f"{given[0]}: --arch {arch} is fairseq's own and has no such flag; {use}"
    return one_line(message, [*flags_of_parser(parser), *ours], words)


def _value_of(flags: Sequence[str], words: Sequence[str]) -> Optional[str]:
    for word, following in zip(words, [*words[1:], None]):
        name, equals, value = word.partition("=")
        if name in flags:
            return value if equals else following
    return None


def _instead_of(arch: str) -> Optional[str]:
    """The model of the plug-in that is fairseq's *arch* with positions, or None."""
    stock = ARCH_MODEL_REGISTRY.get(arch)
    for family in FAMILIES.values():
        bases = (base for base in family.class_.__mro__ if base.__module__.startswith("fairseq."))
        if stock is not None and issubclass(stock, next(bases)):
            return family.model
    return None
