"""``fairseq-posenc step``, ``alone`` and ``script``: what recipes are made of."""

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any, List, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command

STEP = """\
Run a command once: not again until the command or the content of its inputs has changed.

    fairseq-posenc step clean --folder out --inputs out/train.en out/train.de \\
        --outputs out/clean/train.en out/clean/train.de -- \\
        fairseq-posenc clean out/train.en out/train.de out/clean/train.en out/clean/train.de

Several commands have a quoted '&&' between them. The step is done when they have ended well and the
outputs are there; a marker in DIR/steps then says so. While they run, no other process can work in
the folder, and a signal (INT, TERM, HUP) ends all that they have started.

With --resumes, the command is fairseq-train, and the folder its --save-dir: it goes on there where
it was interrupted. It is refused if it was begun with other data or other flags, but for those that
say where it runs, how much it logs and keeps, and a larger --max-update or --max-epoch. A damaged
checkpoint_last.pt is replaced by the newest whole checkpoint beside it. A training that is over is
not repeated."""

ALONE = """\
Run a command, such as a script of several steps, while no other process can work in a folder.

    fairseq-posenc alone out -- bash prepare.sh out

The lock is the file .lock in the folder; it ends with the processes. A signal (INT, TERM, HUP) ends
all that the command has started. The exit status is that of the command."""

STALE = """\
Say which of several folders hold something that was made from other data.

    fairseq-posenc stale runs/*/ --data data-bin"""


SCRIPT = """\
Run a Python script that uses this package, such as those of the recipes.

    fairseq-posenc script examples/common/score.py --help

`python FILE` does the same, but waits for fairseq: importing the package registers it there. A
script that is run here starts at once, and calls fairseq_posenc.register() if it needs that."""


def add_step(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``step``."""
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the step, unique in the folder")
    add("--folder", required=True, metavar="DIR", help="the folder of its marker, DIR/steps")
    several: Any = {"nargs": "+", "action": "extend", "default": []}
    add("--inputs", **several, metavar="PLACE", help="files and folders that it reads")
    add(
        "--data",
        nargs="+",
        default=[],
        metavar="DIR",
        help="data folders that it reads as a training does: the dictionary, train and valid count",
    )
    add("--outputs", **several, metavar="PLACE", help="files and folders that it makes")
    add("--settings", nargs="+", default=[], metavar="TEXT", help="what else decides its result")
    add(
        "--replaces",
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders that it makes anew: the commands write PARENT/.part/NAME, which takes the "
        "place of PARENT/NAME at the end, unless that is equal",
    )
    add(
        "--known-by",
        default="",
        metavar="FILE",
        help="a file in those folders; one without it is not replaced",
    )
    add("--log", default="", metavar="FILE", help="keep the output there, besides showing it")
    add("--watch", default="", metavar="DIR", help="tell the size of this folder every half minute")
    add("--waits", action="store_true", help="wait for another process in the folder")
    add("--check", action="store_true", help="only refuse what would be refused; run nothing")
    add("--resumes", action="store_true", help="the command is a training, which goes on")
    add("--follows", action="store_true", help="another node takes care of the training's folder")
    _add_option(parser)
    _add_command(parser)


def add_alone(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``alone``."""
    parser.add_argument("folder", nargs="?", metavar="DIR", help="the folder to lock (none)")
    parser.add_argument("--name", default="", help="the name by which others are told of it")
    parser.add_argument("--waits", action="store_true", help="wait for another process there")
    _add_option(parser)
    _add_command(parser)


def add_stale(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``stale``."""
    parser.add_argument("folders", nargs="*", metavar="DIR", help="folders of steps")
    parser.add_argument("--data", required=True, metavar="DIR", help="the data folder")


def _add_option(parser: argparse.ArgumentParser) -> None:
    text = "what names the folder on the command line of the recipe, for messages"
    parser.add_argument("--option", default="", metavar="NAME", help=text)


def _add_command(parser: argparse.ArgumentParser) -> None:
    """Declare the command after ``--``, whose words argparse would take for options."""
    parser.epilog = "The command follows --."
    parse = parser.parse_known_args

    def split(args: Any = None, namespace: Any = None) -> Tuple[argparse.Namespace, List[str]]:
        words = list(args)
        end = words.index("--") if "--" in words else len(words)
        found, unknown = parse(words[:end], namespace)
        found.words = words[end + 1 :]
        return found, unknown

    parser.parse_known_args = split  # type: ignore[assignment,method-assign]


def run_step(args: argparse.Namespace) -> Optional[int]:
    """Do a step, unless it is done."""
    from fairseq_posenc.steps.markers import TRAINING_FILES
    from fairseq_posenc.steps.step import Step, check, do
    from fairseq_posenc.steps.training import train

    inputs: List[Tuple[str, Tuple[str, ...]]] = [(place, TRAINING_FILES) for place in args.data]
    inputs += [(place, ("*",)) for place in args.inputs]
    step = Step(
        args.name,
        Path(args.folder),
        args.words,
        inputs,
        args.outputs,
        args.settings,
        args.replaces,
        args.known_by,
        args.log,
        args.watch,
        args.option,
    )
    if args.check:
        check(step)
    elif not args.words:
        raise UsageError(f"{args.name}: give a command after --")
    elif args.resumes:
        train(step, _recover, args.waits, args.follows)
    else:
        do(step, args.waits)
    return None


def _recover(folder: str) -> None:
    from fairseq_posenc.checkpoints.archive import recover_last

    recover_last(folder)


def run_alone(args: argparse.Namespace) -> int:
    """Run a command under a lock."""
    from fairseq_posenc.steps.lock import hold
    from fairseq_posenc.steps.processes import run

    if not args.words:
        raise UsageError("alone: give a command after --")
    if args.folder is None:
        status = run(args.words)
    else:
        name, other = args.name or args.words[0], f"another {args.option or 'folder'}"
        with hold(Path(args.folder), name, args.waits, other) as (descriptors, variables):
            status = run(args.words, descriptors, variables)
    return status if status >= 0 else 128 - status


def run_stale(args: argparse.Namespace) -> None:
    """Name the folders whose steps have read other data."""
    from fairseq_posenc.steps.markers import TRAINING_FILES, digest_of, markers_in
    from fairseq_posenc.steps.processes import say

    place, digest = os.path.abspath(args.data), digest_of(args.data, TRAINING_FILES)
    for folder in args.folders:
        inputs = [marker.get("inputs", {}) for marker in markers_in(Path(folder))]
        if any(one.get(place, digest) != digest for one in inputs):
            say(
                f"{folder.rstrip('/')}: is of other data than {args.data} has now; make it again "
                "or remove it"
            )


def add_script(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="the script")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER)


def run_script(args: argparse.Namespace) -> None:
    """Run the script as Python does."""
    if not os.path.isfile(args.file):
        raise UsageError(f"script {args.file}: no such file")
    sys.argv = [args.file, *args.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(args.file))
    runpy.run_path(args.file, run_name="__main__")


COMMANDS = (
    Command("step", "run a command of a recipe, unless it is done", STEP, add_step, run_step),
    Command("alone", "run a command that no other meets in a folder", ALONE, add_alone, run_alone),
    Command("stale", "name folders that were made from other data", STALE, add_stale, run_stale),
    Command("script", "run a Python script of a recipe", SCRIPT, add_script, run_script),
)
