"""``fairseq-posenc predict``."""

import argparse

from fairseq_posenc.cli.command import Command, load_plug_in
from fairseq_posenc.cli.streaming import add_stream_arguments, buffer_of, check_least

DESCRIPTION = """\
Classify the lines of a table of texts, or of pairs of texts, with columns separated by tabs.

    fairseq-posenc predict --model FOLDER <texts >labels
    fairseq-posenc predict --model FOLDER --input test.tsv --header --columns sentence1,sentence2

For each line, in order, a line with the label, a tab and its probability; of a regression, with the
value. Lines without text, or with more than the model accepts, give an empty line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add_stream_arguments(parser)
    add(
        "--ensemble",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a further model folder for the same task, whose logits are averaged with those of "
        "--model; may be repeated",
    )
    add("--input", metavar="FILE", help="the table (standard input)")
    add("--output", metavar="FILE", help="the file to write (standard output)")
    add(
        "--columns",
        metavar="A[,B]",
        help="columns of the texts, by number from 1, or with --header by name (1, or 1,2 for a "
        "model of pairs)",
    )
    add("--header", action="store_true", help="the first line of the table names its columns")
    add(
        "--scores",
        action="store_true",
        help="add the probability of every label, below a line of their names",
    )


def run(args: argparse.Namespace) -> None:
    """Classify a table."""
    from fairseq_posenc.basics.lines import decoded
    from fairseq_posenc.serving.model_folder import read_model_folder, refuse_without_head
    from fairseq_posenc.serving.streams import opened, write_file, write_standard_output

    folders = [read_model_folder(path) for path in (args.model, *args.ensemble)]
    head = refuse_without_head(folders[0], f"--model {args.model}")
    check_least(args)
    with opened(args.input, "--input") as stream:
        load_plug_in(args.user_dir)
        import torch

        from fairseq_posenc.serving.masked_lm import MaskedLanguageModel
        from fairseq_posenc.serving.predict import Ensemble, check_same_heads, predicted_lines

        if args.threads:
            torch.set_num_threads(args.threads)
        check_same_heads(folders, "--ensemble")
        models = [MaskedLanguageModel(folder, args.device) for folder in folders]
        lines = predicted_lines(
            Ensemble(models, head).predict,
            head,
            decoded(stream, "the input"),
            args.columns,
            args.header,
            args.scores,
            buffer_of(args),
            args.max_tokens,
        )
        if args.output is None:
            write_standard_output(lines)
        else:
            write_file(args.output, "--output", lines)


COMMAND = Command(
    "predict",
    "label texts or pairs of texts with a classifier's model folder",
    DESCRIPTION,
    add_arguments,
    run,
)
