"""The arguments of commands that write a line for each line of a text, with a model folder."""

import argparse
import sys

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.cli.command import add_user_dir

_LEAST = {"max_tokens": 1, "buffer": 1, "threads": 0}


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from fairseq_posenc.serving.streams import BUFFER

    add = parser.add_argument
    add(
        "--model", required=True, metavar="FOLDER", help="a folder that `fairseq-posenc pack` wrote"
    )
    add("--max-tokens", type=int, default=4000, metavar="N", help="tokens in a batch (4000)")
    add(
        "--buffer",
        type=int,
        metavar="N",
        help=f"lines to read before the model is run ({BUFFER}; 1 from a terminal)",
    )
    add("--threads", type=int, default=0, metavar="N", help="default: the engine's own")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="default: cpu")
    add_user_dir(parser)


def check_least(args: argparse.Namespace, **least: int) -> None:
    """Check that numbers are not too small.

    Args:
        args: parsed arguments.
        least: the smallest value of further arguments, by name.

    Raises:
        UsageError: naming the first that is.
    """
    for name, smallest in {**_LEAST, **least}.items():
        value = getattr(args, name)
        if value is not None and value < smallest:
            raise UsageError(f"{flag_of(name)} {value}: must be at least {smallest}")


def buffer_of(args: argparse.Namespace) -> int:
    """Number of lines to read before the model is run."""
    from fairseq_posenc.serving.streams import BUFFER

    typed = getattr(args, "input", None) is None and sys.stdin.isatty()
    return args.buffer or (1 if typed else BUFFER)
