"""Low-rank matrices of a model of this plug-in (``--lora-rank``) as an adapter of PEFT.

A class of transformers can have one module where we have several projections.  Their matrices
A₁, A₂ (r, C) and B₁, B₂ are then those of one product of rank 2r:

    [B₁ A₁; B₂ A₂] = [B₁ 0; 0 B₂] [A₁; A₂]

with the rows of the joint module in its own order, and rows of zeros for a projection without
matrices.
"""

import dataclasses
import os
import tempfile
from argparse import Namespace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.lines import read_json_object
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.settings import architecture, is_ours, saved_settings
from fairseq_posenc.configuration.fields import computing_fields
from fairseq_posenc.exchange.exporter import (
    ADAPTERS,
    CARD_FLAGS,
    SUBWORD_FLAGS,
    Adapter,
    Exported,
    WritesWhole,
)
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.rope import paired
from fairseq_posenc.exchange.huggingface.table import TRANSPOSED, Architecture, TransformersClass
from fairseq_posenc.exchange.huggingface.tensors import Place, places
from fairseq_posenc.models.kinds import CAUSAL, TRANSLATION, Parameters, Settings, kind_of
from fairseq_posenc.packs.low_rank.models import DIGEST, PARTS, LowRankFlags, LowRankLinear
from fairseq_posenc.packs.low_rank.peft_folder import (
    LowRank,
    is_adapter,
    merge,
    merged_folder,
    write_adapter,
)

PEFT_BASE = Flag(
    "peft_base",
    "base of a PEFT adapter, in transformers' format (import: the base that the adapter names)",
    "DIR",
)
LORA_BASE = Flag("lora_base", "the checkpoint that matrices adapt, if it was moved", "FILE")
_TASKS = {CAUSAL.name: "CAUSAL_LM", TRANSLATION.name: "SEQ_2_SEQ_LM"}
#: Brings the rows of parameters, by our names, into the order of a class.
Ordered = Callable[[Parameters], Parameters]
#: Entries of config.json that can differ in a folder with more symbols or another precision.
_FREE = ("vocab_size", "torch_dtype")
_MERGE = "merge them first by fairseq-posenc merge-lora, and export the whole model"


def is_adapted(path: str) -> bool:
    """True for a checkpoint of low-rank matrices."""
    return os.path.isfile(path) and DIGEST in read_checkpoint(path, lazy=True)["model"]


def export_adapter(
    wanted: Wanted, whole: WritesWhole, target: Optional[TransformersClass], folder: str
) -> Tuple[Exported, Optional[float]]:
    """Write the matrices of an adapted model, and compare it where *wanted* says so.

    Args:
        whole: writes a whole model, given a request and a folder.
        target: the class of transformers that loads the folder, or None.
        folder: an existing empty folder.

    Returns:
        what was written, and the largest difference of the logits.

    Raises:
        UsageError: the class has no place for something that was trained, or the base is missing or
            does not fit.
    """
    for name, *_ in (*SUBWORD_FLAGS, *CARD_FLAGS):
        if wanted.get(name):
            raise UsageError(
                f"{flag_of(name)} {wanted.get(name)}: has no effect on an adapter, which has "
                "neither a tokenizer nor a card; drop it"
            )
    settings, base = _adapted_settings(wanted)
    if target is None or target.kind.name != settings["kind"]:
        raise UsageError(
            f"{wanted.path}: holds low-rank matrices, for which this format has no place; {_MERGE}"
        )
    theirs = wanted.get("peft_base")
    if theirs is None:
        raise UsageError(
            f"{wanted.path}: holds low-rank matrices; export their base {base} to a folder and "
            f"give that by --peft-base, or {_MERGE}"
        )
    modules = list(places(target, Architecture(), settings))
    ordered = partial(paired, settings=settings, target=target)
    with tempfile.TemporaryDirectory() as copy:
        written = whole(wanted._replace(path=base), copy)
        _check_base(theirs, copy, base)
        model = written.checkpoint.load(wanted.path, {"lora_base": base})
        matrices = matrices_of(model, modules, ordered, wanted.path)
        entries = {
            "task_type": _TASKS.get(settings["kind"]),
            "base_model_name_or_path": theirs,
            "fan_in_fan_out": any(place.layout is TRANSPOSED for place in modules),
        }
        by_end: Dict[str, List[str]] = {}  # the modules of all layers
        for place in modules:
            by_end.setdefault(place.module, []).append(place.theirs)
        write_adapter(folder, matrices, by_end, entries)
        difference = None
        if wanted.verify:
            merge(folder, theirs, copy)
            difference = written.compare(model)
    note = f"an adapter of PEFT for {theirs}: {len(matrices)} modules"
    return written._replace(notes=[note]), difference


ADAPTERS.append(
    Adapter(
        (PEFT_BASE, LORA_BASE), (PEFT_BASE,), is_adapted, is_adapter, export_adapter, merged_folder
    )
)


def _adapted_settings(wanted: Wanted) -> Tuple[Settings, str]:
    """The settings of an adapted model, its ``kind`` among them, and the file of its base.

    Raises:
        UsageError: the base is missing, or has other settings.
    """
    saved = saved_settings(read_checkpoint(wanted.path, lazy=True))
    base = wanted.get("lora_base") or saved["lora_base"]
    if not os.path.isfile(base):
        raise UsageError(f"--lora-base {base}: no such file; give the checkpoint that is adapted")
    theirs = saved_settings(read_checkpoint(base, lazy=True))
    names = [architecture(each) for each in (saved, theirs)]
    kind, of_base = map(kind_of, names)
    # fairseq's own models lack settings
    if kind is None or kind is not of_base or not is_ours(theirs):
        raise UsageError(f"{wanted.path}: is a model {names[0]}, its base a {names[1]}; {_MERGE}")
    settings, theirs = kind.complete(saved), kind.complete(theirs)
    of_matrices = {field.name for field in dataclasses.fields(LowRankFlags)}
    for field in computing_fields(kind.family.dataclass, Namespace(**settings)):
        name = field.name
        if name not in of_matrices and settings[name] != theirs[name]:
            raise UsageError(
                f"{wanted.path}: was trained with {flag_of(name)} {settings[name]}, its base with "
                f"{theirs[name]}, and an adapter cannot change that; {_MERGE}"
            )
    return {**settings, "kind": kind.name}, base


def _check_base(folder: str, copy: str, base: str) -> None:
    """Refuse a folder that differs from *copy*, the export of the base."""
    advice = f"give the folder to which {base} was exported in the same format"
    if not os.path.isdir(folder):
        raise UsageError(f"--peft-base {folder}: there is no such folder; {advice}")
    ours, theirs = (
        read_json_object(os.path.join(each, "config.json"), f"--peft-base {each}: config.json")
        for each in (copy, folder)
    )
    for name in sorted(set(ours) & set(theirs) - set(_FREE)):
        if ours[name] != theirs[name]:
            raise UsageError(
                f"--peft-base {folder}: {name} is {theirs[name]} there and {ours[name]} in the "
                f"base; {advice}"
            )
    weights = hf.read_weights(hf.weights_file(folder))
    for name, value in hf.read_weights(hf.weights_file(copy)).items():
        known = weights.get(name)
        if known is None or not torch.equal(known[: len(value)].float(), value):
            raise UsageError(f"--peft-base {folder}: {name} is not that of the base; {advice}")


def matrices_of(
    model: nn.Module, modules: Sequence[Place], ordered: Ordered, path: str
) -> Dict[str, LowRank]:
    """The low-rank matrices of a model by the names of *modules* in a class of transformers.

    Raises:
        UsageError: the class has no place for some of them, or something else was trained.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.endswith(PARTS):
            raise UsageError(
                f"{path}: has a trained {name} beside its matrices, for which an adapter has no "
                f"place; {_MERGE}"
            )
    ours: Dict[str, Any] = dict(model.named_modules())
    left = {name for name, module in ours.items() if isinstance(module, LowRankLinear)}
    matrices: Dict[str, LowRank] = {}
    for place in modules:
        if left & set(place.ours):
            parts = {name: ours[name] for name in place.ours if name in ours}
            matrices[place.theirs] = _joined(parts, place, ordered)
            left -= set(place.ours)
    if left:
        raise UsageError(
            f"{path}: --lora-layers names {min(left)}, for which an adapter has no place; {_MERGE}"
        )
    return matrices


def _joined(parts: Mapping[str, Any], place: Place, ordered: Ordered) -> LowRank:
    """The matrices of a joint module, given ours by name, adapted or not."""
    adapted: Dict[str, Any] = {n: m for n, m in parts.items() if isinstance(m, LowRankLinear)}
    a = torch.cat([module.lora_A.detach().float() for module in adapted.values()])
    blocks, column = {}, 0
    for name, module in parts.items():
        block = torch.zeros(module.out_features, len(a))
        if name in adapted:
            end = column + len(module.lora_A)
            block[:, column:end], column = module.lora_B.detach(), end
        blocks[f"{name}.weight"] = block
    b = place.layout.join(list(ordered(blocks).values()), place.heads)
    (scale,) = {module.scale for module in adapted.values()}
    return LowRank(a, b.t() if place.layout is TRANSPOSED else b, scale)
