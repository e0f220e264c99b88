"""Conversion between the tensors of a class of transformers and our parameters.

RMS norms have no gains here.  An export writes gains of one.  An import multiplies gains into the
weights that read the output of the norm, because W (g ⊙ x) = (W diag g) x.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface.embeddings import (
    read_embeddings,
    read_tables,
    write_embeddings,
    write_tables,
)
from fairseq_posenc.exchange.huggingface.rope import paired
from fairseq_posenc.exchange.huggingface.table import (
    ALONE,
    CROSS_K,
    CROSS_V,
    LAST_NORM,
    Architecture,
    Layout,
    TransformersClass,
)
from fairseq_posenc.exchange.huggingface.texts import WrittenTexts
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import Config, ForeignParameters, Reader, size_of
from fairseq_posenc.models.kinds import HEADS, MASKED, Settings

_PARTS = ("weight", "bias")
#: Endings of the names of tensors that classes compute themselves.
_COMPUTED = (
    *(".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"),
    *(".rotary_emb.inv_freq", ".position_ids", ".embed_positions.weights"),
)


class Place(NamedTuple):
    """A module in a model of transformers, and the corresponding modules of ours."""

    theirs: str  # its full name
    ours: Tuple[str, ...]  # our full names
    layout: Layout
    heads: int  # H
    module: str  # its name in the table
    part: str  # the first of our names in the table

    def named(self, part: str) -> str:
        """The full name of the module's tensor *part*, ``weight`` or ``bias``."""
        return self.theirs + ("" if self.theirs.endswith("_") else ".") + part


def places(target: TransformersClass, built: Architecture, settings: Settings) -> Iterator[Place]:
    """Every module of *target* that a model with *settings* has."""
    for stack in target.stacks:
        heads = settings.get(f"{stack.side}_attention_heads", 1)  # gated attention has none
        groups = [("", stack.ours, stack.outside, 0)]
        for number in range(settings[f"{stack.side}_layers"]):
            ours = f"{stack.ours}layers.{number}."
            groups.append((stack.layer.format(number), ours, stack.joints, number))
        for start, prefix, joints, number in groups:
            for theirs, names, layout, when in joints:
                if when(settings, number):
                    whole = tuple(prefix + name for name in names)
                    yield Place(start + theirs, whole, layout, heads, theirs, names[0])
    for mine, theirs in built.modules.items():
        yield Place(theirs, (mine,), ALONE, heads, theirs, mine)


# --- writing


def write_tensors(
    target: TransformersClass,
    checkpoint: NativeCheckpoint,
    built: Architecture,
    texts: WrittenTexts,
    entries: Dict[str, Any],
) -> Tuple[ForeignParameters, List[str]]:
    """The parameters of a model under the names of a class, and notes.

    Args:
        entries: the entries of config.json; ``before_writing`` can change them in place.

    Raises:
        UsageError: our model lacks a parameter of the class, or the class lacks one of ours.
    """
    settings, path = checkpoint.settings, checkpoint.path
    side = target.stacks[0].side
    ours = paired(checkpoint.parameters, settings, target)
    state: ForeignParameters = {}
    config = Config(path, entries)
    for place in places(target, built, settings):
        for part in _PARTS:
            found = [ours.pop(f"{name}.{part}", None) for name in place.ours]
            present = [x for x in found if x is not None]
            name = place.named(part)
            if present:
                state[name] = place.layout.join(present, place.heads)
                rows = sum(map(len, present))
            elif part == "bias" and target.biased(place.module, config):
                state[name] = torch.zeros(rows)
            elif part == "weight" and place.part in target.gains:
                state[name], rows = torch.ones(settings[f"{side}_embed_dim"]), 0
            elif part == "weight":
                raise UsageError(
                    f"{path}: has no parameter {place.ours[0]}.weight, which is {name} in "
                    f"{target.name}"
                )
    notes = write_tables(target, ours, state, settings, config)
    write_embeddings(target, ours, state, checkpoint, texts, built)
    target.before_writing(state, entries)
    left = [name for name in ours if target.kind is not MASKED or not name.startswith(HEADS)]
    if left:
        raise UsageError(f"{path}: {target.name} has no counterpart of {left[0]}")
    return state, notes


# --- reading


def read_tensors(
    source: TransformersClass,
    reader: Reader,
    built: Architecture,
    settings: Settings,
    config: Config,
    tied: bool,
) -> List[str]:
    """Move all foreign tensors to our names, complete *settings*, and return notes."""
    for place in places(source, built, settings):
        for part in _PARTS:
            name = place.named(part)
            if part == "weight" or source.biased(place.module, config):
                for mine, x in zip(place.ours, _split(reader, name, place)):
                    reader.put(f"{mine}.{part}", x, name)
            elif _has_bias(place.part, settings):
                for mine in place.ours:
                    rows = reader.parameters[f"{mine}.weight"].shape[:1]
                    reader.put(f"{mine}.bias", torch.zeros(rows), name)
    if built.heads:
        _check_head(reader, list(built.modules), settings["encoder_embed_dim"])
    notes = read_tables(source, reader, settings, config)
    gains = _read_gains(source, reader, built, settings)
    notes += read_embeddings(source, reader, built, settings, config, tied, gains)
    notes += source.after_reading(reader, settings, config)
    dropped = reader.drop(*source.unused) if source.unused else []
    notes += [f"left out {name}, which does not affect the outputs" for name in dropped]
    for name in [name for name in reader.rest if name.endswith(_COMPUTED)]:
        del reader.rest[name]
    return notes


def _check_head(reader: Reader, modules: List[str], channels: int) -> None:
    """Refuse a head whose sizes do not fit; all other sizes are checked later, in the import."""
    for module in modules:
        weight, bias = (reader.parameters[f"{module}.{part}"] for part in _PARTS)
        if weight.shape[-1:] != (channels,) or bias.shape != weight.shape[:1]:
            raise UsageError(
                f"{reader.origin[f'{module}.weight']} has size {size_of(weight)}, its bias "
                f"{size_of(bias)}; these do not fit each other or {channels} channels"
            )


def _has_bias(part: str, settings: Settings) -> bool:
    """Whether our module has a bias; *part* is our name of the module in the table."""
    if part.endswith(("norm", "layernorm_embedding")):
        return settings.get("norm") != "rms"
    return part.startswith(HEADS[1:]) or not settings.get("no_bias")


def _split(reader: Reader, name: str, place: Place) -> List[Tensor]:
    """Take the foreign tensor *name* and split it into our tensors."""
    tensor, number = reader.take(name), len(place.ours)
    try:
        parts = place.layout.split(tensor, number, place.heads)
    except (RuntimeError, TypeError):  # sizes that cannot be divided, or no rows at all
        parts = []
    if len(parts) != number:
        raise UsageError(
            f"{reader.path}: {name} has size {size_of(tensor)}, and cannot be split into {number} "
            f"parts of {place.heads} heads"
        )
    return parts


def _read_gains(
    source: TransformersClass, reader: Reader, built: Architecture, settings: Settings
) -> Dict[str, Tensor]:
    """Multiply gains into the weights after them; return the last norm's gain for each side."""
    last: Dict[str, Tensor] = {}
    for place in places(source, built, settings):
        if place.part not in source.gains:
            continue
        name, side = f"{place.ours[0]}.weight", place.ours[0].split(".")[0]
        gain = reader.parameters.pop(name)
        if gain.shape != (settings[f"{side}_embed_dim"],):
            raise UsageError(
                f"{reader.origin[name]} has size {size_of(gain)}, but the settings of the model "
                f"require {settings[f'{side}_embed_dim']}"
            )
        if place.part == LAST_NORM:
            last[side] = gain
        prefix = place.ours[0][: -len(place.part)]
        reader.scale_columns(gain, [f"{prefix}{mine}.weight" for mine in source.gains[place.part]])
    if len(last) > 1:  # the decoder's layers read the output of the encoder's last norm
        layers = [f"decoder.layers.{number}." for number in range(settings["decoder_layers"])]
        names = [f"{layer}{mine}.weight" for layer in layers for mine in (CROSS_K, CROSS_V)]
        reader.scale_columns(last["encoder"], names)
    return last
