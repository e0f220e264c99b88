"""``fairseq-posenc import`` and ``fairseq-posenc export``."""

import argparse
import ast
from typing import Any, Dict

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_user_dir, load_plug_in

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
    group = parser.add_argument_group("for ctranslate2")
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
    add_user_dir(parser, "your formats and encodings, if the model needs some")


def run_import(args: argparse.Namespace) -> None:
    """Import a model of another toolkit."""
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.formats import importer_of
    from fairseq_posenc.exchange.transfer import import_checkpoint

    importer = importer_of(args.format)
    report = import_checkpoint(importer, args.source, args.out_dir, args.vocab, args.verify)
    print("\n".join(report.lines()))


def run_export(args: argparse.Namespace) -> None:
    """Export a checkpoint of this plug-in."""
    overrides = None if args.model_overrides is None else read_overrides(args.model_overrides)
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.formats import Wanted, check_flags, exporter_of

    exporter = exporter_of(args.format)
    wanted = Wanted(
        args.source,
        args.out_dir,
        args.verify,
        args.vocab,
        args.head,
        args.data,
        args.quantization,
        args.verify_file,
        overrides,
    )
    check_flags(args.format, exporter, wanted)
    print("\n".join(exporter.export(wanted).lines()))


def read_overrides(text: str) -> Dict[str, Any]:
    """The settings of ``--model-overrides``, a dictionary in Python's notation.

    Raises:
        UsageError: it is none.
    """
    try:
        overrides = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        overrides = None
    if not isinstance(overrides, dict):
        raise UsageError(
            f"--model-overrides {text}: must be a dictionary, such as {{'rotary_scaling': 'ntk'}}"
        )
    return overrides


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
