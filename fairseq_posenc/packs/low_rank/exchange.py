"""Exports the low-rank matrices of a model (``--lora-rank``) as an adapter of PEFT.

A class of transformers can have one joint module where we have several projections.  The matrices
A₁, A₂ (r, C) and B₁, B₂ of these projections then form one product of rank 2r:

    [B₁ A₁; B₂ A₂] = [B₁ 0; 0 B₂] [A₁; A₂]

The rows have the order of the joint module; a projection without matrices has rows of zeros.
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
    "transformers folder of an adapter's base (default in import: the one that the adapter names)",
    "DIR",
)
LORA_BASE = Flag("lora_base", "the base that the low-rank matrices adapt, if it was moved", "FILE")
_TASKS = {CAUSAL.name: "CAUSAL_LM", TRANSLATION.name: "SEQ_2_SEQ_LM"}
#: Reorders the rows of parameters, keyed by our names, for a class of transformers.
Ordered = Callable[[Parameters], Parameters]
#: Entries of config.json that may differ: a folder can have more symbols or another precision.
_FREE = ("vocab_size", "torch_dtype")
_MERGE = "merge the matrices by fairseq-posenc merge-lora, and export the merged model"


def is_adapted(path: str) -> bool:
    """True for a checkpoint of low-rank matrices."""
    return os.path.isfile(path) and DIGEST in read_checkpoint(path, lazy=True)["model"]


def export_adapter(
    wanted: Wanted, whole: WritesWhole, target: Optional[TransformersClass], folder: str
) -> Tuple[Exported, Optional[float]]:
    """Write the low-rank matrices of a model; with ``--verify``, compare the written model to it.

    Args:
        whole: writes a whole model, given a request and a folder.
        target: the class of transformers that loads the folder, or None.
        folder: an existing empty folder.

    Returns:
        what was written, and the largest difference of the logits, or None without a comparison.

    Raises:
        UsageError: an adapter cannot hold all trained parameters, or the base is missing or does
            not fit.
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
            f"{wanted.path}: holds low-rank matrices, which this format cannot hold; {_MERGE}"
        )
    theirs = wanted.get("peft_base")
    if theirs is None:
        raise UsageError(
            f"{wanted.path}: holds low-rank matrices; export their base {base} to a folder and "
            f"give this folder by --peft-base, or {_MERGE}"
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
        by_end: Dict[str, List[str]] = {}  # modules of all layers, by the end of their names
        for place in modules:
            by_end.setdefault(place.module, []).append(place.theirs)
        write_adapter(folder, matrices, by_end, entries)
        difference = None
        if wanted.verify:
            merge(folder, theirs, copy)
            difference = written.compare(model)
    note = f"an adapter of PEFT for {theirs}, with {len(matrices)} modules"
    return written._replace(notes=[note]), difference


ADAPTERS.append(
    Adapter(
        (PEFT_BASE, LORA_BASE), (PEFT_BASE,), is_adapted, is_adapter, export_adapter, merged_folder
    )
)


def _adapted_settings(wanted: Wanted) -> Tuple[Settings, str]:
    """The settings of an adapted model, including its ``kind``, and the file of its base.

    Raises:
        UsageError: the base is missing, or has other settings.
    """
    saved = saved_settings(read_checkpoint(wanted.path, lazy=True))
    base = wanted.get("lora_base") or saved["lora_base"]
    if not os.path.isfile(base):
        raise UsageError(f"--lora-base {base}: no such file; give the base that was adapted")
    theirs = saved_settings(read_checkpoint(base, lazy=True))
    names = [architecture(each) for each in (saved, theirs)]
    kind, of_base = map(kind_of, names)
    # models of fairseq itself lack our settings
    if kind is None or kind is not of_base or not is_ours(theirs):
        raise UsageError(f"{wanted.path}: is a {names[0]}, but its base is a {names[1]}; {_MERGE}")
    settings, theirs = kind.complete(saved), kind.complete(theirs)
    of_matrices = {field.name for field in dataclasses.fields(LowRankFlags)}
    for field in computing_fields(kind.family.dataclass, Namespace(**settings)):
        name = field.name
        if name not in of_matrices and settings[name] != theirs[name]:
            raise UsageError(
                f"{wanted.path}: was trained with {flag_of(name)} {settings[name]}, its base with "
                f"{theirs[name]}, but an adapter cannot change this; {_MERGE}"
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
                f"--peft-base {folder}: {name} is {theirs[name]}, but {ours[name]} in "
                f"the base; {advice}"
            )
    weights = hf.read_weights(hf.weights_file(folder))
    for name, value in hf.read_weights(hf.weights_file(copy)).items():
        known = weights.get(name)
        if known is None or not torch.equal(known[: len(value)].float(), value):
            raise UsageError(f"--peft-base {folder}: {name} differs from the base; {advice}")


def matrices_of(
    model: nn.Module, modules: Sequence[Place], ordered: Ordered, path: str
) -> Dict[str, LowRank]:
    """The low-rank matrices of a model, keyed by the names of *modules* in transformers.

    Raises:
        UsageError: the class has no module for some matrices, or other parameters were trained.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.endswith(PARTS):
            raise UsageError(
                f"{path}: has a trained parameter {name} beside its matrices, but an adapter can "
                f"hold only matrices; {_MERGE}"
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
            f"{path}: --lora-layers selects {min(left)}, which an adapter cannot hold; {_MERGE}"
        )
    return matrices


def _joined(parts: Mapping[str, Any], place: Place, ordered: Ordered) -> LowRank:
    """The matrices of a joint module; *parts* are our modules by name, adapted or not."""
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
