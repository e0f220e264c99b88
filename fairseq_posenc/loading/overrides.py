"""Checks of ``--model-overrides``, which must not change what a trained model computes."""

import difflib
from typing import Any, Dict, Iterable, Mapping, Optional

from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import OmegaConf, open_dict

from fairseq_posenc.checkpoints.reading import model_settings
from fairseq_posenc.config.fields import metadata_of, plug_in_flags
from fairseq_posenc.errors import UsageError, flag_of
from fairseq_posenc.loading.settings import is_ours, trained_settings
from fairseq_posenc.loading.task import change_task
from fairseq_posenc.settings import check_option

Overrides = Optional[Dict[str, Any]]


def check_overrides(checkpoint: Mapping[str, Any], overrides: Overrides, path: str) -> None:
    """Refuse overrides of settings that are part of the trained model, unless they agree with it.

    Args:
        checkpoint: the contents of the file.
        overrides: values by name; those of the model can be in a dictionary ``model``.
        path: the file, for error messages.

    Raises:
        UsageError: naming the first such setting, or a misspelt one.
    """
    trained, own = trained_settings(checkpoint), plug_in_flags()
    ours = is_ours(model_settings(checkpoint))
    for name, value in _flat(overrides).items():
        if name in trained and ours:
            if value != trained[name]:
                raise _refused(name, value, path, f"was trained with {trained[name]!r}")
        elif name in own and own[name].metadata["role"] == "model" and value is not None:
            what = "was trained without it" if ours else "is not a model of this plug-in"
            raise _refused(name, value, path, what)
        elif ours:
            _check_spelling(name, checkpoint, own)


def apply_overrides(checkpoint: Mapping[str, Any], overrides: Overrides, path: str) -> None:
    """Check and apply overrides of a checkpoint's settings, in place.

    Args:
        checkpoint: the contents of the file, as fairseq reads it.
        overrides: as for :func:`check_overrides`.
        path: the file, for error messages.

    Raises:
        UsageError: a setting is part of the trained model, misspelt, or out of range.
    """
    if not overrides:
        return
    check_overrides(checkpoint, overrides, path)
    change_task(checkpoint, overrides, path)
    overwrite_args_by_name(checkpoint["cfg"], overrides)
    model: Any = checkpoint["cfg"].model
    if OmegaConf.is_config(model) and "position_encoding" in model:
        with open_dict(model):  # fairseq ignores flags newer than the checkpoint
            known = plug_in_flags()
            model.update({name: v for name, v in _flat(overrides).items() if name in known})
        for name in _flat(overrides):
            check_option(model, name, metadata_of(name, known))


def _flat(overrides: Overrides) -> Dict[str, Any]:
    flat = dict(overrides or {})
    nested = flat.pop("model", None)
    return {**flat, **nested} if isinstance(nested, dict) else flat


def _refused(name: str, value: object, path: str, what: str) -> UsageError:
    return UsageError(
        f"--model-overrides {name}={value!r}: {path} {what}, and that is part of the trained "
        f"model; to change it, train on with --finetune-from-model {path} {flag_of(name)} {value}"
    )


def _check_spelling(name: str, checkpoint: Mapping[str, Any], own: Iterable[str]) -> None:
    groups = checkpoint.get("cfg") or {}
    known = {name for group in groups.values() if isinstance(group, Mapping) for name in group}
    known |= {*groups, *own}
    near = difflib.get_close_matches(name, [] if name in known else known, n=1, cutoff=0.85)
    if near:
        raise UsageError(f"--model-overrides {name}: unknown setting; did you mean {near[0]}?")
