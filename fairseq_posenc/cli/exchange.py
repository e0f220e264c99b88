"""``fairseq-posenc import``, ``export``, ``pack``: models of other toolkits, and model folders."""

import argparse
import math

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_user_dir, at_least, load_plug_in
from fairseq_posenc.cli.text import add_text_arguments, text_from
from fairseq_posenc.serving.model_folder import Search

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
    from fairseq_posenc.flags.values import read_overrides

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


def add_pack_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add, defaults = parser.add_argument, Search()
    checkpoint = "a checkpoint of fairseq or this plug-in"
    add("checkpoint", nargs="?", metavar="CHECKPOINT", help=checkpoint)
    add("out_dir", nargs="?", metavar="FOLDER", help="the folder to write")
    add("--check", metavar="FOLDER", help="only check a folder that was packed before")
    add("--data", metavar="DIR", help="the binary data, with the dictionaries")
    add("--source-lang", metavar="LANG", help="default: as in the checkpoint or the data")
    add("--target-lang", metavar="LANG", help="default: as in the checkpoint or the data")
    add_text_arguments(parser)
    add(
        "--target-subword-file",
        metavar="FILE",
        help="the subword file of the target, if it is another",
    )
    add(
        "--regression-range",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="the values that 0 and 1 stand for in the targets of a regression (0 1)",
    )
    add("--beam", type=int, default=defaults.beam, metavar="N", help=f"({defaults.beam})")
    add("--lenpen", type=float, default=defaults.lenpen, metavar="X", help=f"({defaults.lenpen})")
    add("--about", metavar="TEXT", help="a sentence on the data, for the card")
    add("--scores", nargs="+", default=[], metavar="FILE", help="texts with scores, for the card")
    add(
        "--ctranslate2",
        nargs="?",
        const="yes",
        default="no",
        choices=("yes", "auto", "no"),
        help="also export to CTranslate2; auto: if it is installed and can compute the model (no)",
    )
    add("--quantization", metavar="TYPE", help="type of the exported weights: int8, ... (float32)")
    add_user_dir(parser)


def run_pack(args: argparse.Namespace) -> None:
    """Write a model folder, or check one."""
    if args.check is not None:
        _run_check(args)
        return
    for name, value in (("CHECKPOINT", args.checkpoint), ("FOLDER", args.out_dir)):
        if value is None:
            raise UsageError(f"pack: give {name}, as in `pack CHECKPOINT FOLDER --data DIR`")
    if args.data is None:
        raise UsageError("pack: give --data, the folder with the dictionaries")
    if args.quantization is not None and args.ctranslate2 == "no":
        raise UsageError(
            f"--quantization {args.quantization}: is for the export; give --ctranslate2, too"
        )
    at_least(args, beam=1)
    low, high = args.regression_range or (0.0, 1.0)
    if not -math.inf < low < high < math.inf:
        raise UsageError(f"--regression-range {low:g} {high:g}: the first must be the smaller")
    text = text_from(args, needed=False)
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.pack import Pack, pack

    wanted = Pack(
        args.checkpoint,
        args.data,
        text._replace(subword_file=None, target_subword_file=None),
        text.subword_file,
        Search(args.beam, args.lenpen),
        args.about,
        args.scores,
        args.ctranslate2,
        args.quantization,
        args.regression_range,
        text.target_subword_file,
    )
    report = pack(wanted, args.out_dir)
    if report is not None:
        print("\n".join(report._replace(files=[]).lines()))
    print("wrote " + args.out_dir)


def _run_check(args: argparse.Namespace) -> None:
    for name, value in (("CHECKPOINT", args.checkpoint), ("--data", args.data)):
        if value is not None:
            raise UsageError(f"--check {args.check}: writes nothing; leave {name} {value} out")
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.pack import check

    count = check(args.check)
    digests = f"{count} files are those that were packed"
    print(f"{args.check}: whole; {digests if count else 'packed before there were digests'}")


COMMANDS = (
    Command(
        "import",
        "import a checkpoint of another toolkit",
        "Convert a model of another toolkit to checkpoint.pt and dict.txt.",
        add_import_arguments,
        run_import,
    ),
    Command(
        "export",
        "export a checkpoint to another toolkit",
        "Convert a checkpoint of this plug-in to a model of another toolkit.",
        add_export_arguments,
        run_export,
    ),
    Command(
        "pack",
        "put a model and what its text needs into one folder",
        "Write a model folder: checkpoint, dictionaries, subwords, how text was prepared, a\n"
        "card, and on request the model exported to CTranslate2. `fairseq-posenc translate` and\n"
        "`predict` read the folder, and from Python fairseq_posenc.from_pretrained.",
        add_pack_arguments,
        run_pack,
    ),
)
