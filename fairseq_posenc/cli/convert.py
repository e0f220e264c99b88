"""``fairseq-posenc import`` and ``fairseq-posenc export``."""

import argparse
import ast
import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.cli.command import Command, load_plug_in

if TYPE_CHECKING:
    from fairseq_posenc.exchange.transfer import Report

#: The format for an engine, which can only be exported; it has flags of its own.
ENGINE = "ctranslate2"
_ONLY_ENGINE = ("data", "quantization", "verify_file", "model_overrides")
KNOWN = "a format that `fairseq-posenc list` names, for example hf-roformer"


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``import``."""
    parser.add_argument("format", metavar="FORMAT", help=KNOWN)
    parser.add_argument("source", metavar="SOURCE", help="the model to import")
    _add_common_arguments(parser, "OUT_DIR", "folder to write to")


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``export``."""
    parser.add_argument("format", metavar="FORMAT", help=KNOWN)
    parser.add_argument("source", metavar="CHECKPOINT", help="a checkpoint of this plug-in")
    parser.add_argument(
        "--head",
        metavar="NAME",
        help="the head to export; lm for the language-model head, and with onnx features for none",
    )
    _add_common_arguments(parser, "OUT", "folder to write to; with onnx a file")
    group = parser.add_argument_group(f"for {ENGINE}")
    group.add_argument(
        "--data", metavar="DIR", help="the binary data, if it is no longer where training had it"
    )
    group.add_argument(
        "--quantization",
        metavar="TYPE",
        help="type of the weights: int8, int8_float16, float16, bfloat16, ... (float32)",
    )
    group.add_argument(
        "--verify-file",
        metavar="FILE",
        help="text in subwords, a sentence a line: count identical beam translations",
    )
    group.add_argument(
        "--model-overrides",
        metavar="DICT",
        help="settings to change, such as \"{'rotary_scaling': 'linear'}\"",
    )


def _add_common_arguments(parser: argparse.ArgumentParser, out: str, what: str) -> None:
    parser.add_argument("out_dir", metavar=out, help=what)
    parser.add_argument(
        "--vocab", metavar="FILE", help="the vocabulary, if it is not beside the model"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run both models on the same tokens, print the largest difference of the logits (of "
        "log-probabilities for an engine), and write nothing if it is above 1e-4",
    )


def run_import(args: argparse.Namespace) -> None:
    """Import a model of another toolkit."""
    load_plug_in()
    from fairseq_posenc.exchange import FORMATS, import_checkpoint

    _check_format(args.format, list(FORMATS), "import")
    paths = (FORMATS[args.format], args.source, args.out_dir, args.vocab)
    _report(import_checkpoint(*paths, verify=args.verify))


def run_export(args: argparse.Namespace) -> None:
    """Export a checkpoint of this plug-in."""
    if args.format == ENGINE:
        _export_engine(args)
        return
    for name in _ONLY_ENGINE:
        if getattr(args, name) is not None:
            flag = flag_of(name)
            raise UsageError(f"{flag} {getattr(args, name)}: is for export {ENGINE}; drop it")
    load_plug_in()
    from fairseq_posenc.exchange import FORMATS, export_checkpoint, onnx_export

    writable = [name for name, entry in FORMATS.items() if entry.write]
    _check_format(args.format, [*writable, ENGINE, onnx_export.NAME], "export")
    if args.format == onnx_export.NAME:
        _report(
            onnx_export.export_onnx(args.source, args.out_dir, args.vocab, args.head, args.verify)
        )
        return
    paths = (FORMATS[args.format], args.source, args.out_dir, args.vocab)
    _report(export_checkpoint(*paths, head=args.head, verify=args.verify))


def _export_engine(args: argparse.Namespace) -> None:
    """Export to CTranslate2."""
    for name in ("vocab", "head"):
        if getattr(args, name) is not None:
            raise UsageError(f"{flag_of(name)} {getattr(args, name)}: is not for export {ENGINE}")
    overrides = read_overrides(args.model_overrides)
    if args.data is not None:
        if not os.path.isdir(args.data):
            raise UsageError(f"--data {args.data}: there is no such folder")
        overrides["data"] = args.data
    load_plug_in()
    from fairseq_posenc.serving.export import export_ctranslate2

    report = export_ctranslate2(
        args.source, args.out_dir, overrides, args.quantization, args.verify, args.verify_file
    )
    for note in report.notes:
        print("note: " + note)
    if report.difference is not None:
        print(f"largest difference from fairseq: {report.difference:.2e}")
    if report.same is not None:
        print(f"identical beam translations: {report.same[0]} of {report.same[1]}")
    for file in report.files:
        print("wrote " + file)


def read_overrides(text: Optional[str]) -> Dict[str, Any]:
    """The settings of ``--model-overrides``, a dictionary in Python's notation.

    Raises:
        UsageError: it is none.
    """
    try:
        overrides = ast.literal_eval(text or "{}")
    except (ValueError, SyntaxError):
        overrides = None
    if not isinstance(overrides, dict):
        raise UsageError(
            f"--model-overrides {text}: must be a dictionary, such as {{'rotary_scaling': 'ntk'}}"
        )
    return overrides


def _check_format(name: str, known: List[str], command: str) -> None:
    if name not in known:
        raise UsageError(f"{command} {name}: unknown format; expected one of {', '.join(known)}")


def _report(report: "Report") -> None:
    for note in report.notes:
        print("note: " + note)
    if report.difference is not None:
        print(f"largest difference from {report.compared_with}: {report.difference:.2e}")
    for file in report.files:
        print("wrote " + file)


IMPORT = Command(
    "import",
    "import a checkpoint of another toolkit",
    "Convert a model of another toolkit to checkpoint.pt and dict.txt.",
    add_import_arguments,
    run_import,
)
EXPORT = Command(
    "export",
    "export a checkpoint to another toolkit",
    "Convert a checkpoint of this plug-in to a model of another toolkit.",
    add_export_arguments,
    run_export,
)
