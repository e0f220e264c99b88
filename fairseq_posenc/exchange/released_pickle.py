"""Reading checkpoints of fairseq 0.9, which contain objects of removed classes."""

from argparse import Namespace
from typing import Any, Dict

from fairseq_posenc.checkpoints.reading import load_file


class _Meter:
    """Stand-in for a training statistic, whose content is not used."""


_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
_STAND_INS: Dict[str, object] = {
    "argparse.Namespace": Namespace,
    **{f"fairseq.meters.{name}": type(name, (_Meter,), {}) for name in _METERS},
}


def read_released(path: str) -> Any:
    """Load a checkpoint of fairseq 0.9 with an allow-list of classes, on every PyTorch.

    Args:
        path: the file.

    Returns:
        its content.

    Raises:
        UsageError: as :func:`fairseq_posenc.checkpoints.reading.load_file`.
    """
    return load_file(path, stand_ins=_STAND_INS)
