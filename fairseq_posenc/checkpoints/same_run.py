"""The check that averaged checkpoints are different ones of one training run."""

from typing import Any, Dict, Mapping

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.archive import fingerprint
from fairseq_posenc.checkpoints.run_record import record_of


class SameRun:
    """Collects checkpoints and refuses one that was given before, or is of another training.

    The folder of a file does not matter, nor do settings that may change when a run is resumed.
    Files without a run's identifier, which version 0.2.0 introduced, are told apart by their seed,
    and two of them after the same update are of two trainings.
    """

    def __init__(self) -> None:
        self.seen: Dict[Any, str] = {}
        self.first: Dict[str, Any] = {}

    def add(self, path: str, checkpoint: Mapping[str, Any]) -> None:
        """Add a checkpoint.

        Args:
            path: its file.
            checkpoint: its content.

        Raises:
            UsageError: naming two files.
        """
        content = fingerprint(path)
        if content in self.seen:
            raise UsageError(
                f"{path}: is the same checkpoint as {self.seen[content]} and would count twice; "
                "give each checkpoint once"
            )
        self.seen[content] = path
        for what, value in _signs(checkpoint).items():
            other, file = self.first.setdefault(what, (value, path))
            if value != other:
                raise _unrelated(path, file, f"{what} {value} instead of {other}")
        updates = num_updates(checkpoint)
        if "run" in self.first or not updates:
            return
        twin = self.seen.setdefault(("update", updates), path)
        if twin != path:
            raise _unrelated(path, twin, f"both are of update {updates}, but differ")


def num_updates(checkpoint: Mapping[str, Any]) -> int:
    """The number of updates after which a checkpoint was written, 0 if it does not say."""
    history = checkpoint.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def _signs(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """Values that all checkpoints of a run have in common, by name."""
    run = record_of(checkpoint).get("run")
    if run is not None:
        return {"run": run}
    common = (checkpoint.get("cfg") or {}).get("common") or {}
    return {"--seed": common["seed"]} if common.get("seed") is not None else {}


def _unrelated(path: str, other: str, why: str) -> UsageError:
    return UsageError(
        f"{path}: is not of the same training run as {other} ({why}); average checkpoints of one "
        "training run"
    )
