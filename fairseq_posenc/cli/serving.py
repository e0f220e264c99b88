"""``fairseq-posenc translate`` and ``predict``: a model folder answers a text line by line."""

import argparse
import sys
from typing import Iterable

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_user_dir, at_least, load_plug_in

_LEAST = {"max_tokens": 1, "buffer": 1, "threads": 0}


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from fairseq_posenc.serving.streams import BUFFER

    add = parser.add_argument
    add(
        "--model", required=True, metavar="FOLDER", help="a folder that `fairseq-posenc pack` wrote"
    )
    add("--input", metavar="FILE", help="the text to read (standard input)")
    add("--output", metavar="FILE", help="the file to write (standard output)")
    add("--max-tokens", type=int, default=4000, metavar="N", help="tokens in a batch (4000)")
    add(
        "--buffer",
        type=int,
        metavar="N",
        help=f"lines to read before the model is run ({BUFFER}; 1 from a terminal)",
    )
    add("--threads", type=int, default=0, metavar="N", help="default: the engine's own")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="default: cpu")
    add_user_dir(parser)


def buffer_of(args: argparse.Namespace) -> int:
    """Number of lines to read before the model is run."""
    from fairseq_posenc.serving.streams import BUFFER

    typed = args.input is None and sys.stdin.isatty()
    return args.buffer or (1 if typed else BUFFER)


def write_output(args: argparse.Namespace, lines: Iterable[str]) -> None:
    """Write *lines* to the file of ``--output``, complete or not at all, or to standard output."""
    from fairseq_posenc.serving.streams import write_file, write_standard_output

    if args.output is None:
        write_standard_output(lines)
    else:
        write_file(args.output, "--output", lines)


def add_translate(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add_stream_arguments(parser)
    add("--engine", choices=("ctranslate2", "fairseq"), help="default: ctranslate2 if exported")
    add("--beam", type=int, metavar="N", help="number of hypotheses (default: as in the folder)")
    add("--lenpen", type=float, metavar="X", help="length penalty (default: as in the folder)")
    add("--n-best", type=int, default=1, metavar="N", help="translations of each line (1)")
    add("--scores", action="store_true", help="write the score and a tab before each translation")
    add(
        "--prefix",
        action="store_true",
        help="after a tab, a line has the text that its translation starts with",
    )
    add(
        "--max-length",
        type=int,
        metavar="N",
        help="longest translation, in tokens (200, as for fairseq-generate)",
    )
    add(
        "--compute-type",
        default="default",
        metavar="TYPE",
        help="type in which CTranslate2 computes: float32, int8, float16, ... (as exported)",
    )


def translate(args: argparse.Namespace) -> None:
    """Translate ``--input`` to ``--output``."""
    from fairseq_posenc.basics.lines import decoded
    from fairseq_posenc.serving.engines import engine_for
    from fairseq_posenc.serving.model_folder import read_model_folder
    from fairseq_posenc.serving.streams import opened
    from fairseq_posenc.serving.translate import MAX_LENGTH, Beam, Format, Hardware, Translator
    from fairseq_posenc.text.preparation import Preparation

    folder = read_model_folder(args.model)
    at_least(args, **_LEAST, beam=1, n_best=1, max_length=1)
    size = max(args.beam or folder.search.beam, args.n_best)
    if args.beam is not None and args.beam < args.n_best:
        raise UsageError(f"--n-best {args.n_best}: must be at most --beam {args.beam}")
    penalty = folder.search.lenpen if args.lenpen is None else args.lenpen
    longest = args.max_length or MAX_LENGTH
    beam = Beam(size, penalty, args.n_best, longest, args.max_tokens)
    format = Format(args.scores, args.n_best > 1, args.prefix)
    hardware = Hardware(args.device, args.threads, args.compute_type)
    with opened(args.input, "--input") as stream:
        if args.engine == "fairseq" or folder.export is None:
            load_plug_in(args.user_dir)
        preparation = Preparation(folder.text, folder.path)
        engine = engine_for(folder, hardware, args.engine)
        translator = Translator(preparation, engine, beam, format)
        lines = translator.translate(decoded(stream, args.input or "the input"), buffer_of(args))
        write_output(args, lines)


PREDICTED = """\
Classify the lines of a table of texts, or of pairs of texts, with columns separated by tabs.

    fairseq-posenc predict --model FOLDER <texts >labels
    fairseq-posenc predict --model FOLDER --input test.tsv --header --columns sentence1,sentence2

For each line, in order, a line with the label, a tab and its probability; of a regression, with the
value. Lines without text, or with more than the model accepts, give an empty line."""


def add_predict(parser: argparse.ArgumentParser) -> None:
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


def predict(args: argparse.Namespace) -> None:
    """Classify a table."""
    from fairseq_posenc.basics.lines import decoded
    from fairseq_posenc.serving.model_folder import read_model_folder, refuse_without_head
    from fairseq_posenc.serving.streams import opened

    folders = [read_model_folder(path) for path in (args.model, *args.ensemble)]
    head = refuse_without_head(folders[0], f"--model {args.model}")
    at_least(args, **_LEAST)
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
            decoded(stream, args.input or "the input"),
            args.columns,
            args.header,
            args.scores,
            buffer_of(args),
            args.max_tokens,
        )
        write_output(args, lines)


COMMANDS = (
    Command(
        "translate",
        "translate text, line by line, with a model folder",
        "Translate a text, a line for each line, in order.\n"
        "With an exported model, neither PyTorch nor fairseq is loaded.",
        add_translate,
        translate,
    ),
    Command(
        "predict",
        "label texts or pairs of texts with a classifier's model folder",
        PREDICTED,
        add_predict,
        predict,
    ),
)
