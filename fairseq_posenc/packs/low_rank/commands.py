"""``fairseq-posenc merge-lora``."""

import argparse

from fairseq_posenc.cli.command import argument, command, load_plug_in, place, user_dir


@command(
    "merge-lora",
    "merge trained low-rank matrices into the model that they adapt",
    place("CHECKPOINT", "a checkpoint trained with --lora-rank"),
    argument("output", metavar="FILE", help="the checkpoint to write"),
    argument("--lora-base", metavar="FILE", help="the base checkpoint, if it was moved"),
    argument("--data", metavar="DIR", help="the data folder of the training, if it was moved"),
    user_dir(),
)
def merge_lora(args: argparse.Namespace) -> None:
    """Write a checkpoint without low-rank matrices that computes the same outputs."""
    load_plug_in(args.user_dir)
    from fairseq_posenc.packs.low_rank.models import merge_file

    merge_file(args.checkpoint, args.output, args.lora_base, args.data)


COMMANDS = (merge_lora,)
