"""The longest source and target of a trained task, for the commands of fairseq that use a model."""

import os
from argparse import Namespace
from typing import Iterable

from fairseq import utils

from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.settings import task_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.values import read_overrides

LIMITS = ("max_source_positions", "max_target_positions")


def take_limits(args: Namespace, names: Iterable[str]) -> None:
    """Take over limits of the tasks that the models of ``--path`` were trained on, in place.

    ``fairseq-generate`` and ``fairseq-interactive`` make a task anew, whose defaults are 1,024
    tokens, however many the model takes.

    Args:
        args: the parsed command line; left alone if it has no ``--path``.
        names: those of :data:`LIMITS` that are not on the command line.
    """
    paths = utils.split_paths(option(args, "path") or "")
    tasks = [task_of(read_checkpoint(path, lazy=True)) for path in paths if os.path.isfile(path)]
    overrides = read_overrides(option(args, "model_overrides") or "{}")
    for name in names:
        limits = [str(overrides.get(name, option(task, name))) for task in tasks]
        if limits and hasattr(args, name) and all(limit.isdigit() for limit in limits):
            setattr(args, name, min(map(int, limits)))
