"""The flags that say how a model's text was prepared."""

import argparse

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import argument, several, switch
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.subwords import RAW, SUBWORD_FILES, SUBWORDS
from fairseq_posenc.serving.words import TOKENIZERS

#: The arguments that say how the text of a model was prepared.
prepared_text = several(
    argument("--tokenizer", choices=TOKENIZERS, default="none", help="how words were split (none)"),
    switch("--dash-splits", "Moses split hyphenated words: rich @-@ text"),
    switch("--lowercase", "text was lower-cased"),
    argument(
        "--subwords", choices=SUBWORDS, default="none", help="how words were split further (none)"
    ),
    argument(
        "--subword-file",
        metavar="FILE",
        help="merges, model of SentencePiece, or folder of a tokenizer of transformers",
    ),
    argument(
        "--text-of",
        metavar="FOLDER",
        help="instead of these flags: as the folder of a packed model says it",
    ),
)


def text_from(args: argparse.Namespace) -> Text:
    """The preparation that the arguments say, with the path of the subwords.

    Raises:
        UsageError: naming the flag that does not fit to the others.
    """
    given = Text(
        args.source_lang,
        vars(args).get("target_lang"),
        args.tokenizer,
        args.dash_splits,
        args.subwords,
        args.subword_file,
        args.lowercase,
        vars(args).get("target_subword_file"),
    )
    if args.text_of is not None:
        return _packed(args.text_of, given)
    if (SUBWORD_FILES[given.subwords] is None) != (given.subword_file is None):
        with_file = [kind for kind, file in SUBWORD_FILES.items() if file is not None]
        raise UsageError(
            f"--subwords {given.subwords}: give one of {', '.join(with_file)} with --subword-file, "
            "or another without"
        )
    if given.dash_splits and given.tokenizer != "moses":
        raise UsageError("--dash-splits: has no effect without --tokenizer moses; drop it")
    if given.subwords in RAW and (given.tokenizer, given.lowercase) != ("none", False):
        raise UsageError(
            f"--subwords {given.subwords}: takes the text as it is; drop --tokenizer and "
            "--lowercase"
        )
    return given


def _packed(folder: str, given: Text) -> Text:
    """The preparation of a model folder, with the paths of its subwords and given languages."""
    languages = Text(source_lang=given.source_lang, target_lang=given.target_lang)
    if given != languages:
        raise UsageError(f"--text-of {folder}: says how text was prepared; drop the other flags")
    packed = read_model_folder(folder, "--text-of")
    text = packed.text
    both = (text.subword_file, text.target_subword_file)
    source, target = (name and packed.file(name) for name in both)
    return text._replace(
        source_lang=given.source_lang or text.source_lang,
        target_lang=given.target_lang,
        subword_file=source,
        target_subword_file=target,
    )
