"""Rotary positions in a ``config.json`` of transformers: base, share of channels, scaling.

Exports have the form that every version of the library reads, ``rope_theta`` and
``rope_scaling``; imports may also have the form of version 5, ``rope_parameters``.
"""

import math
from typing import Any, Dict, Mapping, Tuple

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import rotary_frequencies
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.layouts import rotated_channels
from fairseq_posenc.exchange.huggingface.table import Group
from fairseq_posenc.flags.by_layer import numbers_by_layer
from fairseq_posenc.models.kinds import Settings

_LENGTH, _SHARE = "original_max_position_embeddings", "partial_rotary_factor"
#: Entries of ``rope_scaling`` with fixed values here, by the name of the rule in transformers.
_FIXED: Mapping[str, Mapping[str, Any]] = {
    "yarn": {"beta_fast": rotary_frequencies.MANY_TURNS, "beta_slow": rotary_frequencies.FEW_TURNS},
    "llama3": {
        "low_freq_factor": rotary_frequencies.LLAMA3_FEW_TURNS,
        "high_freq_factor": rotary_frequencies.LLAMA3_MANY_TURNS,
    },
}


def rope(base: str = "rope_theta", share: str = "", usual: float = 1.0) -> Group:
    """The entries of the rotary positions of a language model.

    Args:
        base: another name of the entry of the base, which is written as well.
        share: the entry of the share of rotated channels; a class without it rotates all.
        usual: this share where config.json does not say it.
    """

    def settings(config: Config, known: Settings) -> Settings:
        found = rope_settings(config, base, share or _SHARE, usual)
        if not share:
            config.one_of(
                _SHARE, found["rotary_fraction"], (1.0,), "the class rotates all channels"
            )
        return found

    def entries(known: Settings, path: str) -> Dict[str, Any]:
        found = rope_entries(known, path)
        found[base] = found["rope_theta"]
        return {**found, **({share: known["rotary_fraction"]} if share else {})}

    scaling = ("rotary_scaling", "rotary_scaling_factor", "rotary_original_length")
    others = ("rotary_factors", *(("rotary_fraction",) if share else ()))
    return Group(base, ("rotary_base", *scaling, *others), settings, entries)


def rope_entries(settings: Settings, path: str) -> Dict[str, Any]:
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
    if rule == "ntk":  # a larger base, and nothing else
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


def rope_settings(
    config: Config, base: str = "rope_theta", share: str = _SHARE, usual: float = 1.0
) -> Settings:
    """The flags of rotary positions in config.json; arguments as for :func:`rope`.

    Raises:
        UsageError: a rule or a value is not one of this plug-in's, or two entries contradict each
            other.
    """
    name, scaling = _scaling(config)
    # entries of both places, which can say the same
    both = config._replace(
        entries={**config.entries, **{f"{name}.{key}": x for key, x in scaling.entries.items()}}
    )

    def number(key: str, outside: str, usual: float) -> float:
        inside = f"{name}.{key}"
        both.same(inside, outside, key)
        value = both.factor(inside, both.factor(outside, usual))
        return both.one_of(key, value, (value,))  # a class may read *outside* in its place

    rule = scaling.one_of("rope_type", "default", ("default", "linear", *_FIXED, "longrope"))
    settings: Settings = {
        "rotary_pairing": "half",
        "rotary_base": number("rope_theta", base, 10000.0),
        "rotary_fraction": number(_SHARE, share, usual),
    }
    if rule == "default":
        return settings
    for entry, fixed in _FIXED.get(rule, {}).items():
        scaling.one_of(entry, fixed, (fixed,))
    longest = config.size("max_position_embeddings")
    both.same(_LENGTH, f"{name}.{_LENGTH}")
    length = both.size(f"{name}.{_LENGTH}", both.size(_LENGTH, longest))
    factor = scaling.factor("factor", longest / length if rule == "longrope" else None)
    settings["rotary_scaling"] = rule
    settings["rotary_scaling_factor"] = factor
    if rule == "yarn" and not scaling.flag("truncate", True):
        settings["rotary_scaling"] = "yarn_untruncated"
    if rule == "longrope":
        one, other = (scaling.get(f"{texts}_factor", None) for texts in ("short", "long"))
        if one != other or not isinstance(one, list):
            raise UsageError(
                f"{config.path}: short_factor and long_factor differ; frequencies here do not "
                "change with the length, so they have to be equal"
            )
        settings["rotary_factors"] = ",".join(map(repr, one))
    if rule in rotary_frequencies.TEMPERED:
        _check_temperature(scaling, rotary_frequencies.Scaling(rule, factor, length))
    if rule != "linear":
        settings["rotary_original_length"] = length
    return settings


def _scaling(config: Config) -> Tuple[str, Config]:
    """The object with the scaling in the form of either version, and its name."""
    older, newer = config.group("rope_scaling"), config.group("rope_parameters")
    if older.entries and newer.entries:
        config.same("rope_scaling", "rope_parameters")
    name, found = ("rope_parameters", newer) if newer.entries else ("rope_scaling", older)
    return name, found.without_aliases({"type": "rope_type"})


def _check_temperature(entries: Config, scaling: rotary_frequencies.Scaling) -> None:
    """Refuse another factor on rotated queries and keys than ours."""
    for entry in ("mscale", "mscale_all_dim"):
        entries.one_of(entry, None, (None,))
    ours = scaling.temperature
    theirs = entries.factor("attention_factor", ours if scaling.factor > 1 else 1.0)
    if not math.isclose(theirs, ours, rel_tol=1e-6):
        raise UsageError(
            f"{entries.path}: attention_factor is {theirs}, and with factor {scaling.factor} and "
            f"{_LENGTH} {scaling.length} it is {ours} here"
        )
