"""``fairseq-posenc translate`` and ``predict``: run a model folder on text, line by line."""

import argparse
import contextlib
import sys
from typing import IO, Iterable, Iterator, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import refuse_own_source, replace_file
from fairseq_posenc.basics.lines import bar, decoded
from fairseq_posenc.cli.command import (
    DEVICE,
    argument,
    command,
    load_plug_in,
    number,
    switch,
    user_dir,
)
from fairseq_posenc.cli.standard import standard_input, standard_output
from fairseq_posenc.serving.model_folder import LENPEN, read_model_folder

#: Lines that are read before the model runs, unless a user types them.
BUFFER = 512
_STREAM = (
    argument(
        "--model", required=True, metavar="FOLDER", help="a folder that `fairseq-posenc pack` wrote"
    ),
    argument("--input", metavar="FILE", help="the text to read (standard input)"),
    argument("--output", metavar="FILE", help="the file to write (standard output)"),
    number("--max-tokens", "largest number of tokens in a batch", 4000, at_least=1),
    number(
        "--buffer",
        f"lines to read before the model runs ({BUFFER}; 1 if they are typed)",
        at_least=1,
    ),
    number("--threads", "number of CPU threads (default: the engine's own)", at_least=0),
    DEVICE,
    user_dir(),
)


@contextlib.contextmanager
def _opened(args: argparse.Namespace) -> Iterator[Tuple[Iterator[str], Optional[int]]]:
    """The lines of ``--input`` or standard input, and their number if known; sets ``--buffer``."""
    path = args.input
    typed = path is None and sys.stdin is not None and sys.stdin.isatty()
    args.buffer = args.buffer or (1 if typed else BUFFER)
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(open(path, "rb")) if path is not None else standard_input()
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"--input {path}: cannot be read ({reason})") from error
        yield decoded(stream, path or "the input"), _count(stream)


def _count(stream: IO[bytes]) -> Optional[int]:
    """The number of lines that *stream* still has, or None if they can be read only once."""
    if not stream.seekable():
        return None
    start = stream.tell()
    number = sum(1 for _ in stream)
    stream.seek(start)
    return number


def _write(args: argparse.Namespace, lines: Iterable[str], total: Optional[int]) -> None:
    """Write *lines* to the file of ``--output``, complete or not at all, or to standard output."""
    with contextlib.ExitStack() as stack:
        if args.output is None:
            stream = standard_output()
        else:
            if args.input is not None:
                refuse_own_source(args.output, args.input, flag="--output")
            partial = stack.enter_context(replace_file(args.output, "--output"))
            stream = stack.enter_context(open(partial, "w", encoding="utf-8", newline="\n"))
        if args.output is not None or not sys.stdout.isatty():
            lines = bar(args.output or "standard output", lines, total)
        for line in lines:
            stream.write(line + "\n")
            stream.flush()


@command(
    "translate",
    "translate text, line by line, with a model folder",
    *_STREAM,
    argument(
        "--engine",
        choices=("ctranslate2", "fairseq"),
        help="what translates (default: ctranslate2 if the model was exported, else fairseq)",
    ),
    number("--beam", "number of hypotheses in beam search (default: as in the folder)", at_least=1),
    number("--lenpen", "length penalty (default: as in the folder)", None, float, **LENPEN),
    number("--n-best", "translations per line", 1, at_least=1),
    switch("--scores", "write the score and a tab before each translation"),
    switch("--prefix", "each line is a text, a tab, and the start of its translation"),
    number(
        "--max-length", "longest translation, in tokens (200, as for fairseq-generate)", at_least=1
    ),
    argument(
        "--compute-type",
        default="default",
        metavar="TYPE",
        help="type in which CTranslate2 computes: float32, int8, float16, ... (as exported)",
    ),
)
def translate(args: argparse.Namespace) -> None:
    """Translate a text line by line, in order.

    With an exported model, neither PyTorch nor fairseq is loaded.
    """
    from fairseq_posenc.serving.engines import engine_for
    from fairseq_posenc.serving.preparation import Preparation
    from fairseq_posenc.serving.translate import MAX_LENGTH, Beam, Hardware, translated

    folder = read_model_folder(args.model)
    size = max(args.beam or folder.search.beam, args.n_best)
    if args.beam is not None and args.beam < args.n_best:
        raise UsageError(f"--n-best {args.n_best}: must be at most --beam {args.beam}")
    penalty = folder.search.lenpen if args.lenpen is None else args.lenpen
    longest = args.max_length or MAX_LENGTH
    beam = Beam(size, penalty, args.n_best, longest, args.max_tokens)
    hardware = Hardware(args.device, args.threads or 0, args.compute_type)
    with _opened(args) as (read, total):
        if args.engine == "fairseq" or folder.export is None:
            load_plug_in(args.user_dir)
        preparation = Preparation(folder.text, folder.path)
        engine = engine_for(folder, hardware, args.engine)
        lines = translated(read, preparation, engine, beam, args)
        _write(args, lines, total and total * args.n_best)


@command(
    "predict",
    "label texts or pairs of texts with a classifier's model folder",
    *_STREAM,
    argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a further model folder for the same task, whose logits are averaged with those of "
        "--model; may be repeated",
    ),
    argument(
        "--columns",
        metavar="A[,B]",
        help="columns with the texts: numbers from 1 or, with --header, names (1, or 1,2 for a "
        "model of pairs)",
    ),
    switch("--header", "the first line of the table names its columns"),
    switch("--scores", "also write all labels' probabilities, below a line of column names"),
)
def predict(args: argparse.Namespace) -> None:
    """Classify the lines of a table of texts, or of pairs of texts, with columns separated by tabs.

        fairseq-posenc predict --model FOLDER <texts >labels
        fairseq-posenc predict --model FOLDER --input test.tsv --header \\
            --columns sentence1,sentence2

    For each line of the table, write the label, a tab and its probability, or the predicted value
    of a regression. If a line has no text, write an empty line. If a text is too long for the
    model, truncate it if training truncated such texts; if not, write an empty line.
    """
    folders = [read_model_folder(path) for path in (args.model, *args.ensemble)]
    with _opened(args) as (read, total):
        load_plug_in(args.user_dir)
        import torch

        from fairseq_posenc.serving.hub import load_folder
        from fairseq_posenc.serving.predict import common_head, predicted_lines

        head = common_head(folders)
        if args.threads:
            torch.set_num_threads(args.threads)
        models = [load_folder(folder, args.device) for folder in folders]
        lines = predicted_lines(models, head, read, args)
        _write(args, lines, total and total - args.header + args.scores)


COMMANDS = (translate, predict)
