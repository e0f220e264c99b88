"""Print what the logs and outputs of a run's commands say, as parts of ``result.json``.

    python collect.py train train.log >train.json

Each subcommand prints a JSON object; ``result`` joins such objects into a run's result.
"""

import argparse
import json
import sys
from typing import Any, Callable, Dict, Sequence

from logs import Part, losses, stage, train
from result import choose, read, result
from scores import answers, bleu, documents, extrapolation, lengths

#: For each subcommand, a function that reads the files in its arguments.
READERS: Dict[str, Callable[[Any], Part]] = {
    "stage": lambda args: {},
    "train": lambda args: train(args.files[0]),
    "losses": lambda args: losses(args.files[0], args.subset, args.suffix, args.words),
    "bleu": lambda args: bleu(
        args.files[0], args.references, args.sources, args.target, args.suffix
    ),
    "extrapolation": lambda args: extrapolation(args.files[0]),
    "answers": lambda args: answers(args.files, args.key, args.names, args.positive),
    "lengths": lambda args: lengths(args.files[0], args.task, args.trained),
    "documents": lambda args: documents(
        args.files[1:], args.files[0], args.references, args.target
    ),
    "choose": lambda args: choose(args.files),
    "result": lambda args: result(
        args.folder,
        json.loads(args.about),
        {task: read(path) for task, _, path in (one.partition("=") for one in args.trainings)},
        list(map(read, args.files)),
        args.names,
    ),
}


def main(argv: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=list(READERS))
    parser.add_argument("files", nargs="*", help="files to read")
    parser.add_argument("--log", help="the log with the command and its time")
    parser.add_argument("--stage", default="", help="the stage under which the time is listed")
    for flag in ("suffix", "subset", "references", "sources", "target", "key", "positive", "task"):
        parser.add_argument(f"--{flag}", default="")
    parser.add_argument("--names", nargs="*", default=[])
    for flag in ("trained", "words"):
        parser.add_argument(f"--{flag}", type=int, default=0)
    parser.add_argument("--about", default="{}")
    parser.add_argument("--folder", default="")
    parser.add_argument("--trainings", nargs="*", default=[], metavar="TASK=FILE")
    args = parser.parse_args(argv)
    made = READERS[args.what](args)
    if args.log:
        made = {**made, **stage(args.log, args.stage)}
    json.dump(made, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
