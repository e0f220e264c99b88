"""``export ctranslate2``: a checkpoint as a folder that CTranslate2 loads.

Translation models, language models and encoders, of this plug-in and fairseq's own.  The model is
built and loaded as fairseq's commands do, then its parameters are copied into the specification of
the engine's Python package.
"""

import json
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from fairseq import checkpoint_utils

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import new_folder, refuse_existing
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.settings import saved_settings
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.configuration.stacks import SIDES, side_encoding
from fairseq_posenc.encodings import parse_pattern
from fairseq_posenc.serving.expressible import refuse_inexpressible
from fairseq_posenc.serving.kinds import KINDS, Built, Kind, Loaded
from fairseq_posenc.serving.model_folder import EXPORT_SETTINGS
from fairseq_posenc.serving.positions import refuse_encodings
from fairseq_posenc.serving.stacks import Parameters, epsilon_of
from fairseq_posenc.serving.verify import compare, same_translations
from fairseq_posenc.version import __version__

NAME = "ctranslate2"
SUMMARY = "folder for the engine CTranslate2, translation and language models, encoders"
#: Copies of its layers' parameters that fairseq 0.12.2 keeps.
_COPIES = re.compile(r"layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")


class Report(NamedTuple):
    """The result of an export.

    Args:
        files: the files written.
        notes: what the user should know.
        difference: largest difference of log-probabilities, or of an encoder's states, if compared.
        same: how many of how many translations of a file are identical, if compared.
        quantization: type of the weights.
    """

    files: List[str]
    notes: List[str]
    quantization: str = "float32"
    difference: Optional[float] = None
    same: Optional[Tuple[int, int]] = None


def export_ctranslate2(
    path: str,
    out_dir: str,
    overrides: Mapping[str, Any],
    quantization: Optional[str] = None,
    verify: bool = False,
    verify_file: Optional[str] = None,
) -> Report:
    """Export a checkpoint.

    Args:
        path: the checkpoint.
        out_dir: a folder that does not exist, or is empty.
        overrides: settings to change, such as ``data``, or the scaling of rotary frequencies.
        quantization: type of the weights, such as int8; default: float32.
        verify: compare log-probabilities, or an encoder's states, with fairseq's.
        verify_file: text in subwords, a sentence a line; compare beam translations.

    Raises:
        UsageError: the checkpoint cannot be read or expressed, the folder cannot be written, or a
            float32 export differs by more than 1e-4; nothing is written then.
    """
    import_extra("ctranslate2", f"export {NAME}")
    _check_arguments(out_dir, quantization)
    kind, settings = _kind_of(path)
    refuse_settings(path, kind, {**settings, **overrides})
    return write(_load(path, kind, overrides), kind, out_dir, quantization, verify, verify_file)


@torch.no_grad()
def write(
    loaded: Loaded,
    kind: Kind,
    out_dir: str,
    quantization: Optional[str] = None,
    verify: bool = False,
    verify_file: Optional[str] = None,
) -> Report:
    """Write a loaded model, whose settings :func:`refuse_settings` accepts, and compare it.

    Args:
        loaded: the model.
        kind: what it is.
        out_dir: as for :func:`export_ctranslate2`, like the others.

    Raises:
        UsageError: as :func:`export_ctranslate2`.
    """
    parameters = Parameters()
    built = kind.build(loaded, parameters)
    _check_all_copied(loaded, kind, parameters)
    spec = built.spec
    spec.config.layer_norm_epsilon = epsilon_of(loaded.path, parameters)
    difference = same = None
    with new_folder(out_dir) as side:
        _save(spec, side, quantization)
        with open(os.path.join(side, EXPORT_SETTINGS), "w", encoding="utf-8") as file:
            file.write(_settings(kind, built, quantization))
        if verify:
            difference = compare(kind.name, loaded, side, built, quantization)
        if verify_file is not None:
            same = same_translations(kind.name, loaded, side, verify_file)
        files = [os.path.join(out_dir, name) for name in sorted(os.listdir(side))]
    return Report(files, _notes(kind, loaded, built), quantization or "float32", difference, same)


def _check_arguments(out_dir: str, quantization: Optional[str]) -> None:
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

    if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
        known = " or ".join(ACCEPTED_MODEL_TYPES)
        raise UsageError(f"--quantization {quantization}: must be {known}")
    refuse_existing(out_dir)


def _kind_of(path: str) -> Tuple[Kind, Dict[str, Any]]:
    """The kind of a checkpoint, and its settings as saved."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    settings = saved_settings(read_checkpoint(path, lazy=True))
    arch = str(settings.get("_name") or settings.get("arch"))
    model = ARCH_MODEL_NAME_REGISTRY.get(arch, arch)
    for kind in KINDS:
        if model in (kind.family.model, kind.stock):
            defaults = defaults_of(kind.family.dataclass)
            given = {name: value for name, value in settings.items() if value is not None}
            return kind, {**defaults, **given}
    known = " or ".join(f"{kind.family.model} or {kind.stock}" for kind in KINDS)
    raise UsageError(f"{path}: is a model {arch}; CTranslate2 can be given {known}")


def refuse_settings(path: str, kind: Kind, settings: Mapping[str, Any]) -> None:
    """Refuse what CTranslate2 cannot compute, before anything is loaded or written.

    Args:
        path: the checkpoint, for messages.
        kind: what it is.
        settings: complete, by name.

    Raises:
        UsageError: naming flags and values.
    """
    refuse_inexpressible(path, kind.family, settings, kind.name == "encoder")
    cfg: Any = _Settings(settings)
    for side in SIDES:
        if settings.get("position_encoding") is not None:  # fairseq's own have tables, or nothing
            own = f"{side}_position_encoding"
            flag = flag_of(own if settings.get(own) else "position_encoding")
            value = side_encoding(cfg, side)
            refuse_encodings(path, flag, value, parse_pattern(value))


class _Settings:
    """Settings as attributes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        vars(self).update(settings)


def _load(path: str, kind: Kind, overrides: Mapping[str, Any]) -> Loaded:
    heads = {"load_checkpoint_heads": True} if kind.heads else {}
    try:
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides={**heads, **overrides}
        )
    except UsageError:
        raise
    except Exception as error:  # what fairseq raises depends on the task
        raise UsageError(
            f"{path}: cannot be loaded with its data ({error}); give by --data the folder that it "
            "was trained on"
        ) from error
    name = cfg.task._name if cfg.task is not None else "unknown"
    if name not in kind.tasks:
        raise UsageError(
            f"{path}: was trained with --task {name}, whose inputs CTranslate2 cannot reproduce; "
            f"it can those of {' or '.join(kind.tasks)}"
        )
    model = models[0].eval()
    completed = getattr(model, "completed_settings", cfg.model)
    values = dict(completed) if isinstance(completed, Mapping) else dict(vars(completed))
    return Loaded(path, model, task, values)


def _check_all_copied(loaded: Loaded, kind: Kind, parameters: Parameters) -> None:
    left = [name for name in parameters.left(loaded.model) if not name.startswith(kind.heads)]
    left = [name for name in left if not _COPIES.search(name)]
    if left:
        raise UsageError(
            f"{loaded.path}: its parameter {left[0]} has no counterpart in CTranslate2; nothing is "
            "written"
        )


def _save(spec: Any, folder: str, quantization: Optional[str]) -> None:
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(folder)


def _settings(kind: Kind, built: Built, quantization: Optional[str]) -> str:
    """The description of the export that translating reads, as JSON."""
    entries = {
        "kind": kind.name,
        "longest": built.longest,
        "exact_below": built.exact_below,
        "quantization": quantization or "float32",
        "fairseq_posenc": __version__,
    }
    return json.dumps(entries, indent=2) + "\n"


def _notes(kind: Kind, loaded: Loaded, built: Built) -> List[str]:
    notes = [
        f"the {side} is computed as in training below {limit} tokens"
        for side, limit in built.exact_below.items()
        if limit is not None
    ]
    heads = [name for name, _ in loaded.model.named_parameters() if name.startswith(kind.heads)]
    if heads:
        notes.append("the states of the encoder are exported, without its output layers")
    if loaded.settings.get("segments") == "pairs":
        notes.append("give the segments of pairs as token types")
    return notes
