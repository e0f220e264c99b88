"""``fairseq-posenc pack``."""

import argparse
import math

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_user_dir, load_plug_in
from fairseq_posenc.cli.text import add_text_arguments, check_text_arguments
from fairseq_posenc.serving.model_folder import Search
from fairseq_posenc.text.preparation import Text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add, defaults = parser.add_argument, Search()
    add("checkpoint", metavar="CHECKPOINT", help="a checkpoint of fairseq or this plug-in")
    add("out_dir", metavar="FOLDER", help="the folder to write")
    add("--data", required=True, metavar="DIR", help="the binary data, with the dictionaries")
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


def run(args: argparse.Namespace) -> None:
    """Write a model folder."""
    if args.quantization is not None and args.ctranslate2 == "no":
        raise UsageError(
            f"--quantization {args.quantization}: is for the export; give --ctranslate2, too"
        )
    if args.beam < 1:
        raise UsageError(f"--beam {args.beam}: must be at least 1")
    low, high = args.regression_range or (0.0, 1.0)
    if not -math.inf < low < high < math.inf:
        raise UsageError(f"--regression-range {low:g} {high:g}: the first must be the smaller")
    check_text_arguments(args)
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.pack import Pack, pack

    text = Text(
        args.source_lang,
        args.target_lang,
        args.tokenizer,
        args.dash_splits,
        args.subwords,
        lowercase=args.lowercase,
    )
    wanted = Pack(
        args.checkpoint,
        args.data,
        text,
        args.subword_file,
        Search(args.beam, args.lenpen),
        args.about,
        args.scores,
        args.ctranslate2,
        args.quantization,
        args.regression_range,
        args.target_subword_file,
    )
    report = pack(wanted, args.out_dir)
    if report is not None:
        print("\n".join(report._replace(files=[]).lines()))
    print("wrote " + args.out_dir)


COMMAND = Command(
    "pack",
    "put a model and what its text needs into one folder",
    "Write a model folder: checkpoint, dictionaries, subwords, how text was prepared, a card, and\n"
    "on request the model exported to CTranslate2. `fairseq-posenc translate` and `predict` read\n"
    "it, and from Python fairseq_posenc.from_pretrained.",
    add_arguments,
    run,
)
