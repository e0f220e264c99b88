"""The flags that continue the training of a model, with the same or a different encoding.

A warm start (``--finetune-from-model``) needs flags for the model's shape and its task, because
``fairseq-train`` does not read them from the checkpoint.
"""

import dataclasses
import logging
from typing import Any, List, Mapping, Optional

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import Checkpoint, settings_in
from fairseq_posenc.checkpoints.settings import encodings_by_side, stock_twin
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import defaults_of, plug_in_flags
from fairseq_posenc.encodings import parse
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import FOLLOWING, KINDS, Kind, Settings, kind_of, read_trained

logger = logging.getLogger(__name__)
_NOT_OF_TASK = ("_name", "data", "seed")


def flags_with(path: str, encoding: Optional[str] = None) -> List[str]:
    """The ``fairseq-train`` flags of a trained model, with its own or a different encoding.

    Args:
        path: a checkpoint of this plug-in, of fairseq's ``transformer``, ``transformer_lm`` or
            ``roberta``, or of an unregistered architecture whose layers have the same names.
        encoding: a value of ``--position-encoding``; by default the model's own.
    """
    if encoding is not None:
        parse(encoding)
    checkpoint, settings, name, kind = read_trained(path, lazy=True)
    twin = stock_twin(checkpoint)
    if twin is not None:
        logger.warning(f"{path}: is of --arch {name}, unknown here; treated as fairseq's {twin}")
        kind = kind_of(twin)
    if kind is None:
        known = " or ".join(f"{kind.arch} or {kind.stock}" for kind in KINDS)
        raise UsageError(f"{path}: has --arch {name}; give a model of --arch {known}")
    trained = set(encodings_by_side(settings).values())
    if encoding is not None and trained == {encoding}:
        raise UsageError(
            f"--position-encoding {encoding}: {path} has it already; give a different encoding"
        )
    if encoding is None and len(trained) > 1:
        raise UsageError(
            f"{path}: encoder and decoder have different encodings; choose one for both with "
            "--position-encoding"
        )
    encoding = encoding or trained.pop()
    words = ["--arch", kind.arch, "--position-encoding", encoding]
    words += _of_model(settings, kind, encoding)
    words += _of_group(checkpoint, "task", TASK_DATACLASS_REGISTRY, words)
    words += _of_group(checkpoint, "criterion", CRITERION_DATACLASS_REGISTRY, words)
    return words


def _of_model(settings: Mapping[str, Any], kind: Kind, encoding: str) -> List[str]:
    """The flags of a trained model that also have an effect with *encoding*."""
    family, defaults = kind.family.dataclass, defaults_of(kind.family.dataclass)
    known = {name: value for name, value in settings.items() if value is not None}
    complete: Settings = {**defaults, **known, "position_encoding": encoding}
    complete.update({f"{side}_position_encoding": None for side in SIDES})
    ours, words = plug_in_flags(), []
    for name, value in kind.changed(known).items():
        if name in FOLLOWING or (name in ours and not has_effect(name, complete, family)):
            continue
        if value is False and defaults[name] is True:
            raise UsageError(
                f"{flag_of(name)}: the model was trained without it under hydra, but no flag "
                f"turns it off; start with fairseq-hydra-train and model.{name}=false"
            )
        if value is not False:
            words += [flag_of(name)] + ([] if value is True else [str(value)])
    return words


def _of_group(
    checkpoint: Checkpoint, group: str, registry: Mapping[str, Any], before: List[str]
) -> List[str]:
    """The flags of a group of settings, such as the task's, except flags in *before*."""
    saved = settings_in(checkpoint, group)
    name = str(saved.get("_name") or saved.get(group))
    if name not in registry:
        raise UsageError(
            f"the checkpoint was trained with --{group} {name}, which is not registered; give the "
            "--user-dir that registers it"
        )
    words = [f"--{group}", name]
    for field in dataclasses.fields(registry[name]):
        value, default = saved.get(field.name), field.default
        flag = flag_of(field.name)
        if field.name in _NOT_OF_TASK or flag in before or value in (None, default):
            continue
        if default is dataclasses.MISSING or str(default).startswith("${"):  # not of this group
            continue
        words += [flag] if isinstance(value, bool) else [flag, str(getattr(value, "value", value))]
    return words
