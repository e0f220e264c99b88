"""``fairseq-posenc step``, ``alone``, ``stale`` and ``script``: what recipes are made of."""

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any, List, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Declare, argument, command, place, switch


def _several(name: str, metavar: str, help: str) -> Declare:
    """A flag with one or several values, which may be repeated."""
    return argument(name, nargs="+", action="extend", default=[], metavar=metavar, help=help)


def _text(name: str, metavar: str, help: str) -> Declare:
    """A flag with a text, which is empty by default."""
    return argument(name, default="", metavar=metavar, help=help)


_OPTION = _text(
    "--option", "NAME", "what names the folder on the command line of the recipe, for messages"
)


def _command(parser: argparse.ArgumentParser) -> None:
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


@command(
    "step",
    "run a command of a recipe, unless it is done",
    place("NAME", "name of the step, unique in the folder"),
    argument("--folder", required=True, metavar="DIR", help="the folder of its marker, DIR/steps"),
    _several("--inputs", "PLACE", "files and folders that it reads"),
    _several(
        "--data",
        "DIR",
        "data folders that it reads as a training does: the dictionary, train and valid count",
    ),
    _several("--outputs", "PLACE", "files and folders that it makes"),
    _several("--settings", "TEXT", "what else decides its result"),
    _several(
        "--replaces",
        "DIR",
        "folders that it makes anew: the commands write PARENT/.part/NAME, which takes the place "
        "of PARENT/NAME at the end, unless that is equal",
    ),
    _text("--known-by", "FILE", "a file in those folders; one without it is not replaced"),
    _text("--log", "FILE", "keep the output there, besides showing it"),
    _text("--watch", "DIR", "tell the size of this folder every half minute"),
    switch("--waits", "wait for another process in the folder"),
    switch("--check", "only refuse what would be refused; run nothing"),
    switch("--resumes", "the command is a training, which goes on"),
    switch("--follows", "another node takes care of the training's folder"),
    _OPTION,
    _command,
)
def step(args: argparse.Namespace) -> None:
    """Run a command once: not again until the command or the content of its inputs has changed.

        fairseq-posenc step clean --folder out --inputs out/train.en out/train.de \\
            --outputs out/clean/train.en out/clean/train.de -- \\
            fairseq-posenc clean out/train.en out/train.de out/clean/train.en out/clean/train.de

    Several commands have a quoted '&&' between them. The step is done when they have ended well and
    the outputs are there; a marker in DIR/steps then says so. While they run, no other process can
    work in the folder, and a signal (INT, TERM, HUP) ends all that they have started.

    With --resumes, the command is fairseq-train, and the folder its --save-dir: it goes on there
    where it was interrupted. It is refused if it was begun with other data or other flags, but for
    those that say where it runs, how much it logs and keeps, and a larger --max-update or
    --max-epoch. A damaged checkpoint_last.pt is replaced by the newest whole checkpoint beside it.
    A training that is over is not repeated.
    """
    from fairseq_posenc.steps.markers import TRAINING_FILES
    from fairseq_posenc.steps.step import Step, check, do
    from fairseq_posenc.steps.training import train

    inputs: List[Tuple[str, Tuple[str, ...]]] = [(data, TRAINING_FILES) for data in args.data]
    inputs += [(path, ("*",)) for path in args.inputs]
    found = Step(
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
        check(found)
    elif not args.words:
        raise UsageError(f"{args.name}: give a command after --")
    elif args.resumes:
        train(found, _recover, args.waits, args.follows)
    else:
        do(found, args.waits)


def _recover(folder: str) -> None:
    from fairseq_posenc.checkpoints.archive import recover_last

    recover_last(folder)


@command(
    "alone",
    "run a command that no other meets in a folder",
    argument("folder", nargs="?", metavar="DIR", help="the folder to lock (none)"),
    argument("--name", default="", help="the name by which others are told of it"),
    switch("--waits", "wait for another process there"),
    _OPTION,
    _command,
)
def alone(args: argparse.Namespace) -> int:
    """Run a command while no other process can work in a folder.

    The command can be a script of several steps.

        fairseq-posenc alone out -- bash prepare.sh out

    The lock is the file .lock in the folder; it ends with the processes. A signal (INT, TERM, HUP)
    ends all that the command has started. The exit status is that of the command.
    """
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


@command(
    "stale",
    "name folders that were made from other data",
    argument("folders", nargs="*", metavar="DIR", help="folders of steps"),
    argument("--data", required=True, metavar="DIR", help="the data folder"),
)
def stale(args: argparse.Namespace) -> None:
    """Say which of several folders hold something that was made from other data.

    fairseq-posenc stale runs/*/ --data data-bin
    """
    from fairseq_posenc.steps.markers import TRAINING_FILES, digest_of, markers_in
    from fairseq_posenc.steps.processes import say

    data, digest = os.path.abspath(args.data), digest_of(args.data, TRAINING_FILES)
    for folder in args.folders:
        inputs = [marker.get("inputs", {}) for marker in markers_in(Path(folder))]
        if any(one.get(data, digest) != digest for one in inputs):
            say(
                f"{folder.rstrip('/')}: is of other data than {args.data} has now; make it again "
                "or remove it"
            )


@command(
    "script",
    "run a Python script of a recipe",
    place("FILE", "the script"),
    argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER),
)
def script(args: argparse.Namespace) -> None:
    """Run a Python script that uses this package, such as those of the recipes.

        fairseq-posenc script examples/common/score.py --help

    `python FILE` does the same, but waits for fairseq: importing the package registers it there. A
    script that is run here starts at once, and calls fairseq_posenc.register() if it needs that.
    """
    if not os.path.isfile(args.file):
        raise UsageError(f"script {args.file}: no such file")
    sys.argv = [args.file, *args.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(args.file))
    runpy.run_path(args.file, run_name="__main__")


COMMANDS = (step, alone, stale, script)
