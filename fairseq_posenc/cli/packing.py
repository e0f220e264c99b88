"""``fairseq-posenc pack``: a model folder of a checkpoint and what its text needs."""

import argparse
import math

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import (
    argument,
    at_least,
    command,
    load_plug_in,
    number,
    place,
    switch,
    user_dir,
)
from fairseq_posenc.cli.prepared_text import prepared_text, text_from
from fairseq_posenc.serving.model_folder import Search


@command(
    "pack",
    "put a model and what its text needs into one folder",
    place("CHECKPOINT", "a checkpoint of fairseq or this plug-in", nargs="?"),
    argument("out_dir", nargs="?", metavar="FOLDER", help="the folder to write"),
    argument("--check", metavar="FOLDER", help="only check a folder that was packed before"),
    argument("--data", metavar="DIR", help="the binary data, with the dictionaries"),
    argument("--source-lang", metavar="LANG", help="default: as in the checkpoint or the data"),
    argument("--target-lang", metavar="LANG", help="default: as in the checkpoint or the data"),
    prepared_text,
    argument(
        "--target-subword-file",
        metavar="FILE",
        help="the subword file of the target, if it is another",
    ),
    switch("--trust-subwords", "pack subwords that do not fit the dictionary and the data, too"),
    argument(
        "--regression-range",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="the values that 0 and 1 stand for in the targets of a regression (0 1)",
    ),
    number("--beam", "hypotheses of the beam search", Search().beam),
    number("--lenpen", "length penalty of the beam search", Search().lenpen, float),
    argument("--about", metavar="TEXT", help="a sentence on the data, for the card"),
    argument("--scores", nargs="+", metavar="FILE", help="texts with scores, for the card"),
    argument(
        "--ctranslate2",
        nargs="?",
        const="yes",
        default="no",
        choices=("yes", "auto", "no"),
        help="also export to CTranslate2; auto: if it is installed and can compute the model (no)",
    ),
    argument(
        "--quantization",
        metavar="TYPE",
        help="type of the exported weights: int8, int8_float16, float16, ... (float32)",
    ),
    user_dir(),
)
def pack(args: argparse.Namespace) -> None:
    """Write a model folder.

    It has checkpoint, dictionaries, subwords, how text was prepared, a card, and on request the
    model exported to CTranslate2. `fairseq-posenc translate` and `predict` read the folder, and
    from Python fairseq_posenc.from_pretrained.
    """
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
    text = text_from(args)
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.ctranslate2.export import export_packed
    from fairseq_posenc.serving.pack import Pack
    from fairseq_posenc.serving.pack import pack as write_folder

    wanted = Pack(
        args.checkpoint,
        args.data,
        text._replace(subword_file=None, target_subword_file=None),
        text.subword_file,
        Search(args.beam, args.lenpen),
        args.about,
        args.scores or (),
        args.ctranslate2,
        args.quantization,
        args.regression_range,
        text.target_subword_file,
        args.trust_subwords,
    )
    report = write_folder(wanted, args.out_dir, export_packed)
    if report is not None:
        print("\n".join(report._replace(files=[]).lines()))
    print("wrote " + args.out_dir)


def _run_check(args: argparse.Namespace) -> None:
    for name, value in (("CHECKPOINT", args.checkpoint), ("--data", args.data)):
        if value is not None:
            raise UsageError(f"--check {args.check}: writes nothing; leave {name} {value} out")
    load_plug_in(args.user_dir)
    from fairseq_posenc.serving.pack import check

    count = check(args.check)
    digests = f"{count} files are those that were packed"
    print(f"{args.check}: whole; {digests if count else 'packed before there were digests'}")


COMMANDS = (pack,)
