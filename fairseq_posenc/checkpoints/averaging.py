"""Averaging the parameters of several checkpoints of one training run."""

import math
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import bar
from fairseq_posenc.checkpoints.reading import (
    checkpoints_near,
    read_checkpoint,
    refuse_nonfinite,
    refuse_partial,
    settings_in,
)
from fairseq_posenc.checkpoints.run_record import record_of
from fairseq_posenc.checkpoints.settings import saved_settings, settings_by_role

_RANDOM_FEATURES = ".feature_map.projection"

#: Suffixes of buffers that are not averaged, because their mean is meaningless, but have to be the
#: same in all checkpoints; packs append their own.
IDENTICAL = [_RANDOM_FEATURES]


class _Kind(NamedTuple):
    """A naming scheme of fairseq checkpoints; group 1 of *pattern* is the number to sort by."""

    flag: str
    name: str
    pattern: str


EPOCH = _Kind("--num-epoch-checkpoints", "checkpointN.pt", r"checkpoint(\d+)\.pt")
UPDATE = _Kind("--num-update-checkpoints", "checkpoint_N_M.pt", r"checkpoint_\d+_(\d+)\.pt")
BEST = _Kind(
    "--num-best-checkpoints",
    "checkpoint.best_METRIC_SCORE.pt",
    r"checkpoint\.best_.+_(-?\d+(?:\.\d+)?)\.pt",
)


def find_checkpoints(
    folder: str, kind: _Kind, count: int, upper_bound: Optional[int] = None
) -> List[str]:
    """The last or the best *count* checkpoints in *folder*, oldest or worst first.

    *upper_bound* is the last epoch, or update, to consider.
    """
    if count < 1:
        raise UsageError(f"{kind.flag} {count}: must be at least 1")
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise UsageError(f"--inputs {folder}: {error.strerror}; give a training folder") from error
    matches = [match for match in (re.fullmatch(kind.pattern, name) for name in names) if match]
    numbered = sorted((float(match.group(1)), match.group(0)) for match in matches)
    bound = math.inf if upper_bound is None else upper_bound
    paths = [os.path.join(folder, name) for number, name in numbered if number <= bound]
    if len(paths) < count:
        up_to = "" if upper_bound is None else f" up to {upper_bound}"
        raise UsageError(
            f"{kind.flag} {count}: {folder} has {len(paths)} checkpoints named {kind.name}{up_to}; "
            f"ask for fewer, or train with settings that keep more; {checkpoints_near(folder)}"
        )
    if kind is BEST:
        settings = settings_in(read_checkpoint(paths[0]), "checkpoint")
        if not settings.get("maximize_best_checkpoint_metric"):
            paths.reverse()
    return paths[-count:]


def average_checkpoints(paths: Sequence[str]) -> Dict[str, Any]:
    """Average the parameters of checkpoints, one file in memory at a time.

    The mean is accumulated in float64 and cast back at the end, so the mean of equal checkpoints
    is bitwise equal to them.  Tensors that share memory in the files (tied embeddings) are averaged
    once and stay shared.  Settings, task state, history and training progress come from the
    checkpoint with the most updates.  The optimiser's state is dropped, because no checkpoint's
    Adam moments fit the mean (fairseq's own script keeps the state of one checkpoint); a later
    ``--restore-file`` starts a new optimiser.

    Raises:
        UsageError: the checkpoints are of different training runs, or differ in keys, shapes,
            types, model settings, integers or tied tensors; or a file is given twice, is damaged,
            contains NaN or infinity, or holds only a part of a model.
    """
    mean: Optional[_RunningMean] = None
    newest: Dict[str, Any] = {}
    seen: Dict[str, Any] = {}
    for path in bar("averaging", paths, unit=" checkpoints"):
        state = read_checkpoint(path)
        parameters = state.pop("model")
        refuse_partial(path, parameters)
        state.pop("last_optimizer_state", None)
        if mean is None:
            mean = _RunningMean(path, parameters, settings_to_match(state))
        mean.add(path, parameters, settings_to_match(state))
        _check_same_run(path, state, seen)
        del parameters
        if not newest or num_updates(state) >= num_updates(newest):
            newest = state
    if mean is None:
        raise UsageError("--inputs: give at least one checkpoint")
    newest["model"] = mean.result()
    return newest


def settings_to_match(state: Dict[str, Any]) -> Dict[str, Any]:
    """Settings of the model that averaged checkpoints must share, the architecture first."""
    saved = saved_settings(state)
    arch = {name: saved[name] for name in ("arch", "_name") if saved.get(name) is not None}
    return {**arch, **settings_by_role(state, ("model", "free"))}


def _check_same_run(path: str, checkpoint: Mapping[str, Any], seen: Dict[str, Any]) -> None:
    """Refuse a checkpoint that was given twice, or is of a different run than those in *seen*.

    Runs are told apart by the identifier that checkpoints have held since version 0.2.0, or else by
    their seed.  The folder of a file does not matter.
    """
    run, common = record_of(checkpoint).get("run"), (checkpoint.get("cfg") or {}).get("common")
    what, sign = ("run", run) if run is not None else ("--seed", (common or {}).get("seed"))
    other, file = seen.setdefault(what, (sign, path)) if sign is not None else (None, path)
    if sign != other:
        raise UsageError(
            f"{path}: is not of the same training run as {file} ({what} {sign} instead of "
            f"{other}); average checkpoints of one training run"
        )
    updates = num_updates(checkpoint)
    place = f"update {updates}" if updates else os.path.realpath(path)
    if place in seen:
        raise UsageError(
            f"{path}: is the same checkpoint as {seen[place]} ({place}); give each checkpoint "
            "of one training run once"
        )
    seen[place] = path


def num_updates(checkpoint: Mapping[str, Any]) -> int:
    """The number of updates after which a checkpoint was written, 0 if none is recorded."""
    history = checkpoint.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


class _RunningMean:
    """The mean of the checkpoints added so far, and the properties that all must share."""

    def __init__(self, path: str, parameters: Dict[str, Tensor], settings: Dict[str, Any]) -> None:
        self.path, self.settings, self.count = path, settings, 0
        self.types, self.leader = _types(parameters), _leaders(parameters)
        self.averaged: Dict[str, Tensor] = {}
        self.fixed: Dict[str, Tensor] = {}
        for key in dict.fromkeys(self.leader.values()):
            value = parameters[key]
            if value.is_floating_point() and not key.endswith(tuple(IDENTICAL)):
                self.averaged[key] = value.to(torch.float64, copy=True)
            else:
                self.fixed[key] = value.clone()

    def add(self, path: str, parameters: Dict[str, Tensor], settings: Dict[str, Any]) -> None:
        """Add a checkpoint to the mean."""
        self._check_same(path, "setting", self.settings, settings)
        for key, value in parameters.items():
            refuse_nonfinite(value, key, path)
        self._check_same(path, "parameter", self.types, _types(parameters))
        for key, leader in self.leader.items():
            if leader != key and not torch.equal(parameters[key], parameters[leader]):
                raise UsageError(
                    f"{path}: {key} and {leader} differ, but in {self.path} they are one tensor; "
                    "average checkpoints of one training run"
                )
        for key, value in self.fixed.items():
            if not torch.equal(parameters[key], value):
                redrawn = "the random features were redrawn in between; average checkpoints after "
                redrawn += "--favor-redraw-until, or train with --favor-redraw 0"
                same = "average checkpoints in which it is the same"
                raise UsageError(
                    f"{path}: {key} is not the same as in {self.path}, so its mean would be "
                    f"meaningless; {redrawn if key.endswith(_RANDOM_FEATURES) else same}"
                )
        self.count += 1
        for key, mean in self.averaged.items():
            value = parameters[key].double()
            # this form leaves equal values unchanged, including the sign of zero
            moved = mean + (value - mean) / self.count
            self.averaged[key] = torch.where(value == mean, mean, moved)

    def result(self) -> Dict[str, Tensor]:
        """The mean, with the types, order and shared tensors of the checkpoints."""
        averaged = {key: mean.to(self.types[key][0]) for key, mean in self.averaged.items()}
        leaders = {**self.fixed, **averaged}
        return {key: leaders[leader] for key, leader in self.leader.items()}

    def _check_same(
        self, path: str, what: str, first: Mapping[str, Any], other: Mapping[str, Any]
    ) -> None:
        for key in [*first, *(key for key in other if key not in first)]:
            if (key in first, first.get(key)) != (key in other, other.get(key)):
                raise UsageError(
                    f"{path}: {what} {key} is {_shown(other, key)}, but {_shown(first, key)} in "
                    f"{self.path}; average checkpoints of one training run"
                )


def _types(parameters: Mapping[str, Tensor]) -> Dict[str, Any]:
    return {key: (value.dtype, tuple(value.shape)) for key, value in parameters.items()}


def _leaders(parameters: Dict[str, Tensor]) -> Dict[str, str]:
    """Map each name to the first name whose tensor is in the same memory."""
    first: Dict[Any, str] = {}
    leaders = {}
    for key, value in parameters.items():
        view = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        leaders[key] = first.setdefault(view if value.numel() else key, key)
    return leaders


def _shown(group: Mapping[str, Any], key: str) -> str:
    if key not in group:
        return "absent"
    value = group[key]
    if isinstance(value, tuple) and value and isinstance(value[0], torch.dtype):
        return f"{value[0]} of shape {list(value[1])}"
    return repr(value)
