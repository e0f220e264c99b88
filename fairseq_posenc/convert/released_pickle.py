"""Reading checkpoints of fairseq 0.9, which hold objects of classes that are gone."""

import contextlib
from argparse import Namespace
from typing import Any, Dict

import torch

from fairseq_posenc.checkpoints import reading as checkpoints
from fairseq_posenc.checkpoints.restricted_pickle import load_restricted


class _Meter:
    """Stands in for a statistic of the training; what it counted is of no use here."""


_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
_ALLOWED: Dict[str, Any] = {
    "argparse.Namespace": Namespace,
    **{f"fairseq.meters.{name}": type(name, (_Meter,), {}) for name in _METERS},
}


def read_released(path: str) -> Dict[str, Any]:
    """Load a checkpoint of fairseq 0.9 with a list of allowed classes, on every PyTorch.

    Args:
        path: the file.

    Returns:
        the dictionary in it.

    Raises:
        UsageError: as :func:`fairseq_posenc.checkpoints.load_file`.
    """
    if hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):  # PyTorch 2.6
        with torch.serialization.safe_globals([(kind, name) for name, kind in _ALLOWED.items()]):
            return checkpoints.load_file(path)
    with contextlib.suppress(Exception):
        return load_restricted(path, _ALLOWED)
    return checkpoints.load_file(path)  # says what is wrong with it
