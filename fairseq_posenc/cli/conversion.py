"""``fairseq-posenc import`` and ``export``, to which each format can add flags."""

import argparse
from typing import Any, Dict, Sequence

from fairseq_posenc.basics.errors import OneLineParser, UsageError, flag_of
from fairseq_posenc.basics.lines import say_on_terminal
from fairseq_posenc.basics.packages import load
from fairseq_posenc.cli.command import (
    Declare,
    argument,
    command,
    load_plug_in,
    place,
    switch,
    user_dir,
)

_FORMAT = place("FORMAT", "a format, for example hf-roformer")
_USER_DIR = user_dir("the folder of your own formats and encodings, if the model needs any")
_MORE = """`fairseq-posenc list` names the formats, and `fairseq-posenc {} FORMAT --help`
also shows the flags of that format."""


def _conversion(out: str, what: str, way: str) -> Sequence[Declare]:
    return (
        argument("out_dir", metavar=out, help=what),
        switch(
            "--verify",
            "run both models on the same tokens, print the largest difference between their logits "
            "(for an engine: log-probabilities), and write nothing if it exceeds 1e-4",
        ),
        _USER_DIR,
        # declares the flags of formats when the parser is used
        lambda parser: setattr(parser, "late", lambda words: _declare(parser, words, way)),
    )


def _declare(parser: argparse.ArgumentParser, words: Sequence[str], way: str) -> None:
    """Declare the flags of all formats; if *words* name formats, help shows only their flags."""
    first = OneLineParser(add_help=False)
    _USER_DIR(first)
    load_plug_in(first.parse_known_args(words)[0].user_dir)
    load("exchange")
    from fairseq_posenc.exchange import FORMATS, export_flags, import_flags

    flags = import_flags() if way == "import" else export_flags()
    chosen = set(words) & set(FORMATS)
    parser.set_defaults(flags=list(flags))
    group = parser.add_argument_group("flags of " + (" ".join(sorted(chosen)) or "some formats"))
    for flag, takers in flags.items():
        if flag.name in {*parser._defaults, *(action.dest for action in parser._actions)}:
            raise UsageError(
                f"{flag_of(flag.name)}: this flag of {' and '.join(takers)} has the name of a "
                "flag of the command or of another format; rename it"
            )
        group.add_argument(
            flag_of(flag.name),
            metavar=flag.metavar,
            choices=flag.choices,
            nargs=flag.nargs,
            help=argparse.SUPPRESS if chosen and not chosen & set(takers) else flag.help,
        )


def _options(args: argparse.Namespace) -> Dict[str, Any]:
    found = {}
    for flag in args.flags:
        value = getattr(args, flag.name)
        try:
            found.update({} if value is None else {flag.name: flag.read(value)})
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(f"{flag_of(flag.name)} {value}: {error}") from error
    return found


@command(
    "import",
    "import a checkpoint of another toolkit",
    _FORMAT,
    place("SOURCE", "the model to import"),
    *_conversion("OUT_DIR", "folder to write to", "import"),
    more=_MORE.format("import"),
)
def import_(args: argparse.Namespace) -> None:
    """Convert a model of another toolkit to checkpoint.pt and dict.txt."""
    from fairseq_posenc.exchange import Wanted, format_for
    from fairseq_posenc.exchange.transfer import import_checkpoint

    importer = format_for("import", args.format)
    say_on_terminal(f"converting {args.source}")
    wanted = Wanted(args.source, args.out_dir, args.verify, _options(args))
    print("\n".join(import_checkpoint(importer, wanted).lines()))


@command(
    "export",
    "export a checkpoint to another toolkit",
    _FORMAT,
    argument(
        "source",
        metavar="CHECKPOINT",
        help="a checkpoint of this plug-in; for the formats hf-..., also a model folder",
    ),
    *_conversion("OUT", "folder to write to; for onnx, a file", "export"),
    more=_MORE.format("export"),
)
def export(args: argparse.Namespace) -> None:
    """Convert a checkpoint of this plug-in to a model of another toolkit."""
    from fairseq_posenc.exchange import Wanted, check_flags, format_for

    exporter = format_for("export", args.format)
    wanted = Wanted(args.source, args.out_dir, args.verify, _options(args))
    check_flags(args.format, wanted)
    say_on_terminal(f"converting {args.source}")
    print("\n".join(exporter.export(wanted).lines()))


COMMANDS = (import_, export)
