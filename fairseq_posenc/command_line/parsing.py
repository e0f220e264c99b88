"""Errors of argparse on one line, with the nearest known name."""

import argparse
import difflib
import re
from typing import Optional, Sequence

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.config.fields import plug_in_flags
from fairseq_posenc.errors import flag_of
from fairseq_posenc.models import FAMILIES, family_of


def parse_error(message: str, parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The line that replaces an error of argparse and its usage.

    Args:
        message: what argparse says.
        parser: the parser of a command of fairseq.
        words: the command line.
    """
    choice = re.match(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from (.*)\)$", message)
    if choice:
        flag, value, known = choice.groups()
        return f"{_long(flag)} {value}: unknown" + _near(value, re.findall(r"[\w.\-]+", known))
    invalid = re.match(r"argument (\S+): (invalid \S+ value): '(.*)'$", message)
    if invalid:
        flag, what, value = invalid.groups()
        return f"{_long(flag)} {value!r}: {what}" if not value else f"{_long(flag)} {value}: {what}"
    other = re.match(r"argument (\S+): (.*)$", message)
    if other:
        return f"{_long(other.group(1))}: {other.group(2)}"
    missing = re.match(r"the following arguments are required: (.*)$", message)
    if missing:
        return f"{missing.group(1)}: required"
    if message.startswith("unrecognized arguments: "):
        return _unknown_flag(message.partition(": ")[2].split(), parser, words)
    return message


def _long(flag: str) -> str:
    """``--arch`` of ``--arch/-a``."""
    return max(flag.split("/"), key=lambda name: (name.startswith("--"), len(name)))


def _near(value: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, dict.fromkeys(known), n=3, cutoff=0.6)
    if near:
        return "; did you mean {}?".format(" or ".join(near))
    return "; known: " + ", ".join(known) if len(known) <= 30 else ""


def _unknown_flag(
    unknown: Sequence[str], parser: argparse.ArgumentParser, words: Sequence[str]
) -> str:
    flags = [word.partition("=")[0] for word in unknown if word.startswith("-")] or unknown
    own = [flag for flag in flags if flag[2:].replace("-", "_") in plug_in_flags()]
    flag = (own or flags)[0]
    arch = _value_of(("--arch", "-a"), words)
    if own and arch and family_of(arch) is None:
        ours = _instead_of(arch)
        use = f"give --arch {ours}, which is {arch} with this flag" if ours else "drop it"
        return f"{flag}: --arch {arch} is fairseq's own and has no such flag; {use}"
    known = sorted({name for action in parser._actions for name in action.option_strings})
    if not flag.startswith("-"):
        return f"{' '.join(unknown)}: unexpected; a value with spaces has to be quoted"
    near = _near(flag, [*known, *map(flag_of, plug_in_flags())]).rstrip("?")
    return f"{flag}: unknown flag" + (near if "did you" in near else "")


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
        if stock is not None and issubclass(stock, family.class_.__mro__[1]):
            return family.model
    return None
