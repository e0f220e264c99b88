"""Rotary positions in transformers: the entries of config.json, and the pairing of channels.

Exports write ``rope_theta`` and ``rope_scaling``, which every version of the library reads; imports
also read ``rope_parameters``, which version 5 writes.
"""

import math
from typing import Any, Dict, Mapping, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import rotary_frequencies
from fairseq_posenc.exchange.huggingface.table import Group, TransformersClass
from fairseq_posenc.exchange.reader import Config
from fairseq_posenc.flags.by_layer import numbers_by_layer
from fairseq_posenc.models.kinds import Parameters, Settings

_LENGTH, _SHARE = "original_max_position_embeddings", "partial_rotary_factor"
#: For each ``rope_type``, the entries of ``rope_scaling`` that have fixed values here.
_FIXED: Mapping[str, Mapping[str, Any]] = {
    "yarn": {"beta_fast": rotary_frequencies.MANY_TURNS, "beta_slow": rotary_frequencies.FEW_TURNS},
    "llama3": {
        "low_freq_factor": rotary_frequencies.LLAMA3_FEW_TURNS,
        "high_freq_factor": rotary_frequencies.LLAMA3_MANY_TURNS,
    },
}


def rope(base: str = "rope_theta", share: str = "", usual: float = 1.0) -> Group:
    """The entries for rotary positions in a language model.

    Args:
        base: the class's own name of ``rope_theta``; an export writes both.
        share: the entry for the fraction of rotated channels; a class without it rotates all.
        usual: the fraction of rotated channels if config.json lacks the entry.
    """

    def settings(config: Config, known: Settings) -> Settings:
        name, scaling = _scaling(config)
        nested = {f"{name}.{key}": value for key, value in scaling.entries.items()}
        of_both = {"rope_theta": base, _SHARE: share or _SHARE, _LENGTH: _LENGTH}
        config = config._replace(entries={**config.entries, **nested})
        config = config.without_aliases({f"{name}.{x}": ours for x, ours in of_both.items()})
        theta = config.factor(base, 10000.0)
        fraction = config.factor(share or _SHARE, usual)
        config.one_of("rope_theta", theta, (theta,))  # a class may read it instead of *base*
        why = "" if share else "the class rotates all channels"
        config.one_of(_SHARE, fraction, (fraction if share else 1.0,), why)
        found: Settings = {"rotary_base": theta, "rotary_fraction": fraction}
        return {**found, **_scaling_settings(config, scaling)}

    def entries(known: Settings, path: str) -> Dict[str, Any]:
        found = _entries(known, path)
        found[base] = found["rope_theta"]
        return {**found, **({share: known["rotary_fraction"]} if share else {})}

    scaled = ("rotary_scaling", "rotary_scaling_factor", "rotary_original_length")
    others = ("rotary_factors", *(("rotary_fraction",) if share else ()))
    return Group(base, ("rotary_base", *scaled, *others), settings, entries)


def _entries(settings: Settings, path: str) -> Dict[str, Any]:
    """``rope_theta``, and ``rope_scaling`` if there is a scaling."""
    bases = set(numbers_by_layer("rotary_base", settings["rotary_base"]))
    if len(bases) > 1:
        raise UsageError(
            f"{path}: {flag_of('rotary_base')} {settings['rotary_base']}: the class has one base "
            "for all layers"
        )
    base = bases.pop()
    rule, factor = settings["rotary_scaling"], float(settings["rotary_scaling_factor"])
    length = int(settings["rotary_original_length"])
    if rule == "none":
        return {"rope_theta": base}
    if rule == "ntk":  # equivalent to a larger base
        dim = rotated_channels(settings, "decoder")
        return {"rope_theta": base * factor ** (dim / (dim - 2))}
    name = "yarn" if rule == "yarn_untruncated" else rule
    entry = {"rope_type": name, "type": name, "factor": factor, **_FIXED.get(name, {})}
    if rule != "linear":
        entry[_LENGTH] = length
    if name == "yarn":
        entry["truncate"] = rule == "yarn"
    if rule == "longrope":
        factors = [float(x) for x in str(settings["rotary_factors"]).split(",")]
        temperature = rotary_frequencies.Scaling(rule, factor, length).temperature
        entry.update(short_factor=factors, long_factor=factors, attention_factor=temperature)
    return {"rope_theta": base, "rope_scaling": entry}


def _scaling(config: Config) -> Tuple[str, Config]:
    """The name and the content of the entry that holds the scaling, whichever version wrote it."""
    older, newer = config.group("rope_scaling"), config.group("rope_parameters")
    if older.entries and newer.entries:
        config.same("rope_scaling", "rope_parameters")
    name, found = ("rope_parameters", newer) if newer.entries else ("rope_scaling", older)
    return name, found.without_aliases({"type": "rope_type"})


def _scaling_settings(config: Config, scaling: Config) -> Settings:
    """The settings for a scaling, given config.json and the entry that holds the scaling.

    Raises:
        UsageError: this plug-in does not support the scaling rule, or one of its values.
    """
    rule = scaling.one_of("rope_type", "default", ("default", "linear", *_FIXED, "longrope"))
    if rule == "default":
        return {}
    for entry, fixed in _FIXED.get(rule, {}).items():
        scaling.one_of(entry, fixed, (fixed,))
    longest = config.length("max_position_embeddings")
    length = config.length(_LENGTH, longest)
    factor = scaling.factor("factor", longest / length if rule == "longrope" else None)
    settings: Settings = {"rotary_scaling": rule, "rotary_scaling_factor": factor}
    if rule == "yarn" and not scaling.flag("truncate", True):
        settings["rotary_scaling"] = "yarn_untruncated"
    if rule == "longrope":
        one, other = (scaling.get(f"{texts}_factor", None) for texts in ("short", "long"))
        if one != other or not isinstance(one, list):
            raise UsageError(
                f"{config.path}: short_factor and long_factor must be equal lists, because "
                "frequencies here do not change with the length of the text"
            )
        settings["rotary_factors"] = ",".join(map(repr, one))
    if rule in rotary_frequencies.TEMPERED:
        _check_temperature(scaling, rotary_frequencies.Scaling(rule, factor, length))
    if rule != "linear":
        settings["rotary_original_length"] = length
    return settings


def _check_temperature(entries: Config, scaling: rotary_frequencies.Scaling) -> None:
    """Refuse a factor on rotated queries and keys that differs from ours."""
    for entry in ("mscale", "mscale_all_dim"):
        entries.one_of(entry, None, (None,))
    ours = scaling.temperature
    theirs = entries.factor("attention_factor", ours if scaling.factor > 1 else 1.0)
    if not math.isclose(theirs, ours, rel_tol=1e-6):
        raise UsageError(
            f"{entries.path}: attention_factor is {theirs}, but factor {scaling.factor} and "
            f"{_LENGTH} {scaling.length} require {ours} here"
        )


def rotated_channels(settings: Settings, side: str) -> int:
    """The number of rotated channels of a head."""
    size = settings[f"{side}_embed_dim"] // settings[f"{side}_attention_heads"]
    return int(size * settings["rotary_fraction"])


def reordered(
    parameters: Parameters, pairing: str, head_dim: int, dim: int, values: bool = False
) -> Parameters:
    """A copy of our parameters in which the pairing of channels of queries and keys is changed.

    If rows of queries and of keys are reordered in the same way, their products do not change.

    Args:
        parameters: the parameters of one stack, or of all stacks.
        pairing: the new pairing, ``half`` or ``interleaved``.
        values: whether values are rotated, too; if so, the rows of values and the columns of the
            output projection are also reordered.
    """
    order = torch.tensor([*range(0, dim, 2), *range(1, dim, 2), *range(dim, head_dim)])
    if pairing == "interleaved":
        order = order.argsort()
    rows = ("q_proj.", "k_proj.", "q_norm.", "k_norm.", *(("v_proj.",) if values else ()))

    def reorder(x: Tensor) -> Tensor:
        return x.reshape(-1, head_dim, *x.shape[1:])[:, order].reshape(x.shape)

    def moved(name: str, x: Tensor) -> Tensor:
        if any(f"attn.{part}" in name for part in rows):
            return reorder(x)
        return reorder(x.t()).t() if values and name.endswith(".out_proj.weight") else x

    return {name: moved(name, x) for name, x in parameters.items()}


def paired(parameters: Parameters, settings: Settings, target: TransformersClass) -> Parameters:
    """A copy of our parameters, with the class's pairing of channels if the model is rotary."""
    side, pairing = target.stacks[0].side, target.always.get("rotary_pairing", "interleaved")
    if settings["position_encoding"] != "rotary" or settings["rotary_pairing"] == pairing:
        return dict(parameters)
    size = settings[f"{side}_embed_dim"] // settings[f"{side}_attention_heads"]
    dim = rotated_channels(settings, side)
    return reordered(parameters, pairing, size, dim, settings["rotary_value"])
