"""``fairseq-posenc average``, ``merge-lora``, ``model-flags``, ``import`` and ``export``."""

import argparse
import os
import shlex
from typing import List

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.progress import say_on_terminal
from fairseq_posenc.cli.command import (
    Declare,
    argument,
    command,
    load_plug_in,
    number,
    place,
    several,
    switch,
    user_dir,
)
from fairseq_posenc.serving.subwords import SUBWORDS

_FORMAT = place("FORMAT", "a format that `fairseq-posenc list` names, for example hf-roformer")
#: The texts of a card.
card_texts = several(
    argument("--about", metavar="TEXT", help="a sentence on the data, for the card"),
    argument("--scores", nargs="+", metavar="FILE", help="texts with scores, for the card"),
)
#: The help of ``--quantization``.
QUANTIZATION = "type of the weights: int8, int8_float16, float16, bfloat16, ... (float32)"


def _counts(parser: argparse.ArgumentParser) -> None:
    """Declare the numbers of checkpoints, of which one can be given."""
    one = parser.add_mutually_exclusive_group()
    for which, name, what in (
        ("epoch", "last", "checkpoint<epoch>.pt"),
        ("update", "last", "checkpoint_<epoch>_<update>.pt"),
        ("best", "best", "checkpoint.best_<metric>_<score>.pt"),
    ):
        shown = f"average the {name} N {what} of the folder"
        one.add_argument(f"--num-{which}-checkpoints", type=int, metavar="N", help=shown)


def select(args: argparse.Namespace) -> List[str]:
    """Return the checkpoints that the flags select.

    Raises:
        UsageError: the flags contradict each other, or there are too few checkpoints.
    """
    from fairseq_posenc.checkpoints import averaging

    counts = (
        (averaging.EPOCH, args.num_epoch_checkpoints),
        (averaging.UPDATE, args.num_update_checkpoints),
        (averaging.BEST, args.num_best_checkpoints),
    )
    chosen = [(kind, count) for kind, count in counts if count is not None]
    bound = args.checkpoint_upper_bound
    if bound is not None and (not chosen or chosen[0][0] is averaging.BEST):
        raise UsageError(
            f"--checkpoint-upper-bound {bound}: needs --num-epoch-checkpoints or "
            "--num-update-checkpoints"
        )
    if not chosen:
        folders = [path for path in args.inputs if os.path.isdir(path)]
        if folders:
            raise UsageError(
                f"--inputs {folders[0]}: is a folder; say which of its checkpoints with "
                "--num-epoch-checkpoints N, --num-update-checkpoints N or --num-best-checkpoints N"
            )
        return list(args.inputs)
    (kind, count) = chosen[0]
    if len(args.inputs) != 1:
        raise UsageError(
            f"{kind.flag} {count}: needs one folder as --inputs, not {len(args.inputs)} paths"
        )
    return averaging.find_checkpoints(args.inputs[0], kind, count, bound)


@command(
    "average",
    "average the parameters of several checkpoints",
    argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder"
    ),
    argument("--output", required=True, metavar="FILE", help="the file to write"),
    _counts,
    number(
        "--checkpoint-upper-bound",
        "last epoch, or update, to use with --num-epoch-checkpoints or --num-update-checkpoints",
        metavar="NUMBER",
    ),
    user_dir(),
)
def average(args: argparse.Namespace) -> None:
    """Average the parameters of several checkpoints into one for fairseq-generate.

    The result has no optimiser state: use it for generation, or to start a new training run
    with --finetune-from-model or --restore-file.
    """
    load_plug_in(args.user_dir)
    from fairseq_posenc.basics.files import check_writable, refuse_own_source
    from fairseq_posenc.checkpoints.averaging import average_checkpoints
    from fairseq_posenc.checkpoints.reading import write_checkpoint

    paths = select(args)
    check_writable(args.output, "--output")
    refuse_own_source(args.output, *paths, flag="--output")
    print(f"averaging {len(paths)} checkpoints:")
    for path in paths:
        print("  " + path)
    write_checkpoint(average_checkpoints(paths), args.output)
    print("wrote " + args.output)


def _conversion(out: str, what: str) -> Declare:
    """The arguments that ``import`` and ``export`` share; *what* is at the place *out*."""
    return several(
        argument("out_dir", metavar=out, help=what),
        argument("--vocab", metavar="FILE", help="the vocabulary, if it is not beside the model"),
        switch(
            "--verify",
            "run both models on the same tokens, print the largest difference of the logits (of "
            "log-probabilities for an engine), and write nothing if it is above 1e-4",
        ),
        argument(
            "--peft-base",
            metavar="DIR",
            help="for an adapter of PEFT: the base in transformers (import: as the adapter says)",
        ),
        user_dir("your formats and encodings, if the model needs some"),
    )


@command(
    "merge-lora",
    "merge trained low-rank matrices with the model that they adapt",
    place("CHECKPOINT", "a checkpoint trained with --lora-rank"),
    argument("output", metavar="FILE", help="the checkpoint to write"),
    argument("--lora-base", metavar="FILE", help="its base, if that is no longer where it was"),
    argument("--data", metavar="DIR", help="its data, if they are no longer where they were"),
    user_dir(),
)
def merge_lora(args: argparse.Namespace) -> None:
    """Write a checkpoint without low-rank matrices that computes the same."""
    load_plug_in(args.user_dir)
    from fairseq_posenc.models.low_rank import merge_file

    merge_file(args.checkpoint, args.output, args.lora_base, args.data)


@command(
    "model-flags",
    "print the flags with which a trained model goes on",
    place("CHECKPOINT", "a checkpoint of this plug-in, or of transformer, transformer_lm, roberta"),
    argument("--position-encoding", metavar="NAME", help="another encoding (that of the model)"),
    user_dir(),
)
def model_flags(args: argparse.Namespace) -> None:
    """Print the architecture, shape, task and criterion of a model as flags for fairseq-train.

    fairseq-train takes the parameters from --finetune-from-model or --lora-base, and their shape
    from its command line.

        flags=$(fairseq-posenc model-flags model.pt --position-encoding rotary)
        eval "fairseq-train DATA $flags --user-dir fairseq_posenc --finetune-from-model model.pt"
    """
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.other_encoding import flags_with

    print(shlex.join(flags_with(args.checkpoint, args.position_encoding)))


@command(
    "import",
    "import a checkpoint of another toolkit",
    _FORMAT,
    place("SOURCE", "the model to import"),
    _conversion("OUT_DIR", "folder to write to"),
)
def import_(args: argparse.Namespace) -> None:
    """Convert a model of another toolkit to checkpoint.pt and dict.txt."""
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.shipped import importer_of
    from fairseq_posenc.exchange.transfer import import_checkpoint

    importer = importer_of(args.format)
    say_on_terminal(f"converting {args.source}")
    report = import_checkpoint(
        importer, args.source, args.out_dir, args.vocab, args.verify, args.peft_base
    )
    print("\n".join(report.lines()))


def _for_some_formats(parser: argparse.ArgumentParser) -> None:
    """Declare what only some formats take."""
    group = parser.add_argument_group("for classifiers, translation models and ctranslate2")
    add = group.add_argument
    add("--data", metavar="DIR", help="the binary data, if it is no longer where training had it")
    group = parser.add_argument_group("for translation models and ctranslate2")
    add = group.add_argument
    for side in ("source", "target"):
        shown = "default: as in the checkpoint or the data"
        add(f"--{side}-lang", metavar="LANG", help=shown)
    group = parser.add_argument_group("for models in transformers")
    add = group.add_argument
    add(
        "--text-of",
        metavar="FOLDER",
        help="the folder of a packed model that says how text was prepared",
    )
    add("--subwords", choices=SUBWORDS, help="without --text-of: how words were split (none)")
    add("--subword-file", metavar="FILE", help="merges, model of SentencePiece, or tokenizer")
    add("--lora-base", metavar="FILE", help="the checkpoint that matrices adapt, if it was moved")
    card_texts(parser)


def _for_ctranslate2(parser: argparse.ArgumentParser) -> None:
    """Declare what only one format takes."""
    add = parser.add_argument_group("for ctranslate2").add_argument
    add("--quantization", metavar="TYPE", help=QUANTIZATION)
    add(
        "--verify-file",
        metavar="FILE",
        help="text in subwords, a sentence a line: count identical beam translations",
    )
    add(
        "--model-overrides",
        metavar="DICT",
        help="settings to change, such as \"{'rotary_scaling': 'linear'}\"",
    )


@command(
    "export",
    "export a checkpoint to another toolkit",
    _FORMAT,
    argument(
        "source", metavar="CHECKPOINT", help="a checkpoint of this plug-in, or a model folder"
    ),
    argument(
        "--head",
        metavar="NAME",
        help="the head to export; lm for the language-model head, and with onnx features for none",
    ),
    _conversion("OUT", "folder to write to; with onnx a file"),
    _for_some_formats,
    _for_ctranslate2,
)
def export(args: argparse.Namespace) -> None:
    """Convert a checkpoint of this plug-in to a model of another toolkit."""
    from fairseq_posenc.flags.values import read_overrides

    overrides = None if args.model_overrides is None else read_overrides(args.model_overrides)
    load_plug_in(args.user_dir)
    from fairseq_posenc.exchange.shipped import Wanted, check_flags, exporter_of

    exporter = exporter_of(args.format)
    given = {name: value for name, value in vars(args).items() if name in Wanted._fields}
    given.update(path=args.source, out=args.out_dir, model_overrides=overrides)
    wanted = Wanted(**given)
    check_flags(args.format, exporter, wanted)
    say_on_terminal(f"converting {args.source}")
    print("\n".join(exporter.export(wanted).lines()))


COMMANDS = (average, merge_lora, model_flags, import_, export)
