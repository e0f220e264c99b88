"""Rotary positions in a ``config.json`` of transformers: base, share of channels, scaling.

Exports have the form that every version of the library reads, ``rope_theta`` and
``rope_scaling``; imports may also have the form of version 5, ``rope_parameters``.
"""

from typing import Any, Dict, Mapping

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings.rotary_scaling import (
    FEW_TURNS,
    LLAMA3_FEW_TURNS,
    LLAMA3_MANY_TURNS,
    MANY_TURNS,
    Scaling,
)
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.kinds import Settings
from fairseq_posenc.flags.by_layer import numbers_by_layer

_LENGTH = "original_max_position_embeddings"
#: Entries of ``rope_scaling`` with the only values that a rule has here, by its name there.
_FIXED: Mapping[str, Mapping[str, Any]] = {
    "yarn": {"beta_fast": MANY_TURNS, "beta_slow": FEW_TURNS},
    "llama3": {"low_freq_factor": LLAMA3_FEW_TURNS, "high_freq_factor": LLAMA3_MANY_TURNS},
}


def base_of(settings: Settings, path: str) -> float:
    """The one base of all layers.

    Raises:
        UsageError: layers differ in it.
    """
    value = settings["rotary_base"]
    bases = set(numbers_by_layer("rotary_base", value))
    if len(bases) > 1:
        raise UsageError(
            f"{path}: {flag_of('rotary_base')} {value}: the class has one base for all layers"
        )
    return bases.pop()


def rope_entries(settings: Settings, dim: int, path: str) -> Dict[str, Any]:
    """``rope_theta``, and ``rope_scaling`` if there is a scaling.

    Args:
        settings: complete settings of a rotary model.
        dim: rotated channels of a head.
        path: the checkpoint, for messages.
    """
    base = base_of(settings, path)
    rule, factor = settings["rotary_scaling"], float(settings["rotary_scaling_factor"])
    length = int(settings["rotary_original_length"])
    if rule == "none":
        return {"rope_theta": base}
    if rule == "ntk":  # a larger base, and nothing else
        return {"rope_theta": base * factor ** (dim / (dim - 2))}
    name = "yarn" if rule == "yarn_untruncated" else rule
    entry = {"rope_type": name, "type": name, "factor": factor, **_FIXED.get(name, {})}
    if rule != "linear":
        entry[_LENGTH] = length
    if name == "yarn":
        entry["truncate"] = rule == "yarn"
    if rule == "longrope":
        factors = [float(x) for x in str(settings["rotary_factors"]).split(",")]
        temperature = Scaling(rule, factor, length).temperature
        entry.update(short_factor=factors, long_factor=factors, attention_factor=temperature)
    return {"rope_theta": base, "rope_scaling": entry}


def rope_settings(config: Config, share: float = 1.0) -> Settings:
    """The flags of rotary positions in config.json.

    Args:
        share: the share of rotated channels, where config.json does not say it.

    Raises:
        UsageError: a rule or a value is not one of this plug-in's.
    """
    nested: Any = config.get("rope_parameters", {})
    scaling: Any = {**config.get("rope_scaling", {}), **nested}
    of_scaling = Config(config.path, scaling)
    rule = of_scaling.one_of(
        "rope_type", scaling.get("type", "default"), ("default", "linear", *_FIXED, "longrope")
    )
    settings: Settings = {
        "position_encoding": "rotary",
        "rotary_pairing": "half",
        "rotary_base": of_scaling.factor("rope_theta", config.factor("rope_theta", 10000.0)),
        "rotary_fraction": of_scaling.factor("partial_rotary_factor", share),
    }
    if rule == "default":
        return settings
    for name, value in _FIXED.get(rule, {}).items():
        of_scaling.one_of(name, value, (value,))
    settings["rotary_scaling"] = rule
    settings["rotary_scaling_factor"] = of_scaling.factor("factor", 1.0)
    if rule == "yarn" and not of_scaling.flag("truncate", True):
        settings["rotary_scaling"] = "yarn_untruncated"
    if rule == "longrope":
        one, other = (scaling.get(f"{length}_factor") for length in ("short", "long"))
        if one != other or not isinstance(one, list):
            raise UsageError(
                f"{config.path}: short_factor and long_factor differ; frequencies here do not "
                "change with the length, so they have to be equal"
            )
        settings["rotary_factors"] = ",".join(map(repr, one))
    if rule != "linear":
        settings["rotary_original_length"] = of_scaling.size(
            _LENGTH, config.size("max_position_embeddings")
        )
    return settings
