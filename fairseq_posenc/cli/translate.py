"""``fairseq-posenc translate``."""

import argparse
import sys

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, load_plug_in
from fairseq_posenc.cli.streaming import add_stream_arguments, buffer_of, check_least


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add("--max-length", type=int, metavar="N", help="longest translation, in tokens")
    add(
        "--compute-type",
        default="default",
        metavar="TYPE",
        help="type in which CTranslate2 computes: float32, int8, float16, ... (as exported)",
    )


def run(args: argparse.Namespace) -> None:
    """Translate standard input to standard output."""
    from fairseq_posenc.basics.lines import decoded
    from fairseq_posenc.serving.engine import Beam, Hardware
    from fairseq_posenc.serving.engines import engine_for
    from fairseq_posenc.serving.model_folder import read_model_folder
    from fairseq_posenc.serving.streams import write_standard_output
    from fairseq_posenc.serving.translate import Format, Translator
    from fairseq_posenc.text.preparation import Preparation

    folder = read_model_folder(args.model)
    check_least(args, beam=1, n_best=1, max_length=1)
    size = max(args.beam or folder.search.beam, args.n_best)
    if args.beam is not None and args.beam < args.n_best:
        raise UsageError(f"--n-best {args.n_best}: must be at most --beam {args.beam}")
    penalty = folder.search.lenpen if args.lenpen is None else args.lenpen
    if args.engine == "fairseq" or folder.export is None:
        load_plug_in(args.user_dir)
    preparation = Preparation(folder.text, folder.path)
    engine = engine_for(folder, Hardware(args.device, args.threads, args.compute_type), args.engine)
    longest = args.max_length or sys.maxsize
    beam = Beam(size, penalty, args.n_best, longest, args.max_tokens)
    format = Format(args.scores, args.n_best > 1, args.prefix)
    translator = Translator(preparation, engine, beam, format)
    lines = translator.translate(decoded(sys.stdin.buffer, "the input"), buffer_of(args))
    write_standard_output(lines)


COMMAND = Command(
    "translate",
    "translate text, line by line, with a model folder",
    "Translate standard input to standard output, a line for each line, in order.\n"
    "With an exported model, neither PyTorch nor fairseq is loaded.",
    add_arguments,
    run,
)
