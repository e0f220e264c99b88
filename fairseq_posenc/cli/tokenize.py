"""``fairseq-posenc tokenize``."""

import argparse
from pathlib import Path

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command

DESCRIPTION = """\
Split text into symbols as the tokenizer of a model of transformers does.

    fairseq-posenc tokenize roformer_chinese_base train.txt train.pieces
    fairseq-posenc tokenize roformer_chinese_base --dictionary dict.txt

FOLDER has the tokenizer's vocab.txt or tokenizer.json, as save_pretrained writes them, and perhaps
its tokenizer_config.json: WordPiece, RoFormer's words of jieba, SentencePiece, byte-level BPE. Each
line of INPUT becomes a line of symbols in OUTPUT, for fairseq-preprocess --only-source --srcdict
with the dict.txt that `import` or --dictionary writes: the two are the same. [SEP] becomes </s>,
[UNK] <unk>, and so on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", metavar="FOLDER", help="folder with the tokenizer's files")
    parser.add_argument("input", metavar="INPUT", nargs="?", type=Path, help="text in UTF-8")
    parser.add_argument("output", metavar="OUTPUT", nargs="?", type=Path, help="file to write")
    parser.add_argument(
        "--dictionary", metavar="FILE", type=Path, help="write the tokenizer's symbols as dict.txt"
    )


def run(args: argparse.Namespace) -> None:
    """Write the symbols, the dictionary, or both."""
    from fairseq_posenc.basics.files import check_writable, replace_file
    from fairseq_posenc.basics.lines import read_lines
    from fairseq_posenc.text.tokenizer import dictionary, tokenize

    if args.input is None and args.dictionary is None:
        raise UsageError("tokenize: give INPUT and OUTPUT, or --dictionary FILE, or both")
    if args.input is not None and args.output is None:
        raise UsageError(f"tokenize {args.input}: give OUTPUT, the file to write, too")
    if args.output is not None:
        check_writable(args.output)
        with replace_file(args.output) as partial:
            with open(partial, "w", encoding="utf-8", newline="\n") as stream:
                for line in tokenize(args.folder, read_lines(args.input)):
                    stream.write(line + "\n")
    if args.dictionary is not None:
        content = dictionary(args.folder)
        with replace_file(args.dictionary, "--dictionary") as partial:
            partial.write_bytes(content.encode("utf-8"))


COMMAND = Command(
    "tokenize",
    "split text as the tokenizer of a model of transformers does",
    DESCRIPTION,
    add_arguments,
    run,
)
