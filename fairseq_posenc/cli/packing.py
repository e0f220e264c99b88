"""``fairseq-posenc pack``, and the flags that say how a model's text was prepared."""

import argparse
import math
from typing import TYPE_CHECKING, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import (
    argument,
    command,
    load_plug_in,
    number,
    place,
    switch,
    user_dir,
)
from fairseq_posenc.serving.model_folder import (
    EXPORT,
    LENPEN,
    ModelFolder,
    Search,
    read_model_folder,
)
from fairseq_posenc.serving.preparation import TOKENIZERS, Text
from fairseq_posenc.serving.subwords import RAW, SUBWORDS, check_subword_file

if TYPE_CHECKING:
    from fairseq_posenc.checkpoints.loader import Loaded
    from fairseq_posenc.exchange.formats import Report

#: The arguments that say how the text of a model was prepared.
prepared_text = (
    argument("--tokenizer", choices=TOKENIZERS, default="none", help="the text's tokeniser (none)"),
    switch("--dash-splits", "Moses also split words at hyphens: rich @-@ text"),
    switch("--lowercase", "the training text was lower-cased"),
    argument("--subwords", choices=SUBWORDS, default="none", help="the text's subwords (none)"),
    argument(
        "--subword-file",
        metavar="FILE",
        help="the merges, the SentencePiece model, the list of words, or the tokenizer's folder",
    ),
    argument(
        "--text-of",
        metavar="FOLDER",
        help="a packed model's folder, whose text preparation is used instead of these flags",
    ),
)


def text_from(args: argparse.Namespace) -> Text:
    """The text preparation that the arguments describe, with the path of the subword file."""
    given = Text(**{name: value for name, value in vars(args).items() if name in Text._fields})
    if args.text_of is not None:
        return _packed(args.text_of, given)
    check_subword_file(given.subwords, given.subword_file)
    if given.dash_splits and given.tokenizer != "moses":
        raise UsageError("--dash-splits: has no effect without --tokenizer moses; drop it")
    if given.subwords in RAW and (given.tokenizer, given.lowercase) != ("none", False):
        raise UsageError(
            f"--subwords {given.subwords}: takes the text as it is; drop --tokenizer and "
            "--lowercase"
        )
    return given


def _packed(folder: str, given: Text) -> Text:
    languages = Text(source_lang=given.source_lang, target_lang=given.target_lang)
    if given != languages:
        raise UsageError(f"--text-of {folder}: replaces --tokenizer, --subwords etc.; drop them")
    packed = read_model_folder(folder, "--text-of")
    text = packed.text
    return text._replace(
        source_lang=given.source_lang or text.source_lang,
        target_lang=given.target_lang,
        subword_file=text.subword_file and packed.file(text.subword_file),
        target_subword_file=text.target_subword_file and packed.file(text.target_subword_file),
    )


@command(
    "pack",
    "put a model and its text preparation into one folder",
    place("CHECKPOINT", "a checkpoint of fairseq or this plug-in", nargs="?"),
    argument("out_dir", nargs="?", metavar="FOLDER", help="the folder to write"),
    argument("--check", metavar="FOLDER", help="only check a folder that was packed earlier"),
    argument("--data", metavar="DIR", help="the binarised data, with dictionaries"),
    argument("--source-lang", metavar="LANG", help="default: as in the checkpoint or the data"),
    argument("--target-lang", metavar="LANG", help="default: as in the checkpoint or the data"),
    *prepared_text,
    argument(
        "--target-subword-file",
        metavar="FILE",
        help="the target language's subword file, if it differs from --subword-file",
    ),
    switch("--trust-subwords", "also pack subwords that do not fit the dictionary or the data"),
    argument(
        "--regression-range",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="the values that 0 and 1 stand for in the targets of a regression (0 1)",
    ),
    number("--beam", "number of hypotheses in beam search", Search().beam, at_least=1),
    number("--lenpen", "length penalty in beam search", Search().lenpen, float, **LENPEN),
    argument("--about", metavar="TEXT", help="a sentence about the data, for the card"),
    argument("--scores", nargs="+", metavar="FILE", help="text files with scores, for the card"),
    argument(
        "--ctranslate2",
        nargs="?",
        const="yes",
        default="no",
        choices=("yes", "auto", "no"),
        help="also export to CTranslate2; auto: if it is installed and supports the model (no)",
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

    The folder has the checkpoint, dictionaries, subwords, settings of text preparation, a card and,
    on request, the model exported to CTranslate2. `fairseq-posenc translate` and `predict` read it,
    and so does fairseq_posenc.from_pretrained in Python.
    """
    places = {"CHECKPOINT": args.checkpoint, "FOLDER": args.out_dir, "--data": args.data}
    for name, value in places.items():
        if args.check is None and value is None:
            raise UsageError(f"pack: give {name}, as in `pack CHECKPOINT FOLDER --data DIR`")
        if args.check is not None and value is not None:
            raise UsageError(f"--check {args.check}: writes nothing; leave {name} {value} out")
    if args.check is not None:
        load_plug_in(args.user_dir)
        from fairseq_posenc.serving.pack import check

        count = check(args.check)
        digests = f"{count} files are unchanged since they were packed"
        print(f"{args.check}: complete; {digests if count else 'packed without digests'}")
        return
    if args.quantization is not None and args.ctranslate2 == "no":
        raise UsageError(
            f"--quantization {args.quantization}: is only for an export; also give --ctranslate2"
        )
    low, high = args.regression_range or (0.0, 1.0)
    if not -math.inf < low < high < math.inf:
        raise UsageError(f"--regression-range {low:g} {high:g}: the first must be below the second")
    text = text_from(args)
    load_plug_in(args.user_dir)
    from fairseq_posenc.serving.pack import pack as write_folder

    report = write_folder(args, text, _export)
    if report is not None:
        print("\n".join(report._replace(files=[]).lines()))
    print("wrote " + args.out_dir)


def _export(args: argparse.Namespace, folder: ModelFolder, loaded: "Loaded") -> Optional["Report"]:
    """Export the *loaded* model of a folder or, without an export, check its outputs."""
    from fairseq_posenc.exchange.ctranslate2.export import CTranslate2Exporter
    from fairseq_posenc.exchange.formats import Wanted
    from fairseq_posenc.exchange.verify import refuse_overflow

    flags = {"quantization": args.quantization, "model_overrides": folder.overrides}
    try:
        if args.ctranslate2 != "no":
            wanted = Wanted(args.checkpoint, folder.file(EXPORT), verify=True, options=flags)
            return CTranslate2Exporter().export(wanted)
    except UsageError as error:
        if args.ctranslate2 == "yes":
            raise
        print(f"note: not exported: {error.message}")
    refuse_overflow(loaded)
    return None


COMMANDS = (pack,)
