"""Reading checkpoints of fairseq 0.9, which contain objects of classes that no longer exist."""

from argparse import Namespace
from typing import Any, Dict

from fairseq_posenc.checkpoints.reading import load_file


class _Meter:
    """Stands in for a statistic of the training, whose content is not used."""


_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter")
_STAND_INS: Dict[str, object] = {
    "argparse.Namespace": Namespace,
    **{f"fairseq.meters.{name}": type(name, (_Meter,), {}) for name in _METERS},
}


def read_released(path: str) -> Any:
    """Load a checkpoint of fairseq 0.9 with a list of allowed classes, on every PyTorch.

    Args:
        path: the file.

    Returns:
        what is in it.

    Raises:
        UsageError: as :func:`fairseq_posenc.checkpoints.reading.load_file`.
    """
    return load_file(path, stand_ins=_STAND_INS)
