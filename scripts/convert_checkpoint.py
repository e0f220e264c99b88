#!/usr/bin/env python3
"""Import checkpoints of other tool kits, and export ours to them."""

import argparse
import logging
import os
import sys
import warnings
from typing import List, Optional

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fairseq_posenc.convert import FORMATS, export_checkpoint, import_checkpoint  # noqa: E402


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    formats = "; ".join(f"{name}: {format.summary}" for name, format in FORMATS.items())

    importing = commands.add_parser("import", help="write checkpoint.pt and dict.txt")
    importing.add_argument("format", metavar="FORMAT", choices=list(FORMATS), help=formats)
    importing.add_argument("source", metavar="SOURCE", help="the foreign model")

    writable = [name for name, format in FORMATS.items() if format.write]
    exporting = commands.add_parser("export", help="write a model for another tool kit")
    exporting.add_argument("format", metavar="FORMAT", choices=writable, help=", ".join(writable))
    exporting.add_argument("source", metavar="CHECKPOINT", help="a checkpoint of ours")
    exporting.add_argument(
        "--head", metavar="NAME", help="the head to take along; lm for the language-model head"
    )
    for command in (importing, exporting):
        command.add_argument("out_dir", metavar="OUT_DIR", help="folder to write to")
        command.add_argument(
            "--vocab", metavar="FILE", help="the vocabulary, if it does not lie beside the model"
        )
        command.add_argument(
            "--verify",
            action="store_true",
            help="run both sides on the same tokens, print the largest difference of the logits, "
            "and write nothing if it is above 1e-4",
        )
    return parser


def main(argv: Optional[List[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    logging.disable(logging.WARNING)  # of fairseq and hydra, about themselves
    if not sys.warnoptions:  # unless somebody asked to see them
        warnings.simplefilter("ignore")
    paths = (FORMATS[args.format], args.source, args.out_dir, args.vocab)
    if args.command == "import":
        report = import_checkpoint(*paths, verify=args.verify)
    else:
        report = export_checkpoint(*paths, head=args.head, verify=args.verify)
    for note in report.notes:
        print("note: " + note)
    if report.difference is not None:
        print(f"largest difference from {report.compared_with}: {report.difference:.2e}")
    for file in report.files:
        print("wrote " + file)


if __name__ == "__main__":
    main()
