"""Which settings have an effect on a model, and which have none, such as a rotary base with ALiBi.

That follows from the declarations: a flag of a registry's entry needs that entry, and others name
what they need (``needs`` of :func:`~fairseq_posenc.flags.settings.setting`).
"""

import dataclasses
from argparse import Namespace
from typing import Any, Collection, List, Mapping, Optional

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.position_ids import POSITION_RULES
from fairseq_posenc.encodings.random_positions import SAMPLERS
from fairseq_posenc.encodings.registry import names_in
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.registry import Registry, fields_of
from fairseq_posenc.flags.settings import Needs
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS

_REGISTRIES: List[Registry[Any]] = [
    *(ENCODINGS, ATTENTIONS, NORMS, FEED_FORWARDS),
    *(POSITION_RULES, SAMPLERS),
]
#: The declarations of a model's flags, by name.
Declared = Mapping[str, Mapping[str, Any]]


def declared_by(family: type) -> Declared:
    """The declarations of a family's flags."""
    return {field.name: field.metadata for field in dataclasses.fields(family)}


def has_effect(name: str, settings: Mapping[str, Any], family: type) -> bool:
    """True unless a setting needs an encoding, attention or flag that is not chosen.

    Args:
        name: the name of a flag of *family*.
    """
    return why_without_effect(name, Namespace(**settings), family) is None


def why_without_effect(name: str, cfg: Options, family: type) -> Optional[str]:
    """Say why a setting has no effect, such as ``with --position-encoding alibi``, or None.

    Args:
        name: the name of a flag of *family*.
        cfg: flat configuration, complete.
    """
    lacking = unmet_needs(name, cfg, declared_by(family))
    return None if lacking is None else lacks(lacking, cfg)


def unused_settings(cfg: Options, declared: Declared) -> List[str]:
    """The settings of a trained model that have no effect on it, and not their defaults.

    fairseq's sizes of sub-layers are left out, since their defaults say no more than other values.

    Args:
        cfg: flat configuration, complete.
    """
    return [
        name
        for name, metadata in declared.items()
        if metadata.get("role") == "model"
        and name not in SIZES
        and option(cfg, name) not in (None, metadata.get("default"))
        and unmet_needs(name, cfg, declared) is not None
    ]


def unmet_needs(name: str, cfg: Options, declared: Declared) -> Optional[Needs]:
    """The needs that *cfg* does not meet and that leave the flag *name* without effect, or None."""
    for needs in _all_needs(name, declared):
        inner = []
        for other in needs:
            reason = unmet_needs(other, cfg, declared)
            if reason is None and _matches(other, needs[other], cfg):
                break
            inner.append(reason)
        else:
            return inner[0] or needs
    return None


def lacks(unmet: Needs, cfg: Options) -> str:
    """Name what a flag has no effect with, or without, for messages."""
    first = next(iter(unmet))  # the others are alternatives to it
    now = "+".join(map(str, _values(first, cfg)))
    return f"without {flag_of(first)}" if unmet[first] is None else f"with {flag_of(first)} {now}"


def remedy(unmet: Needs) -> str:
    """What to give so that a flag has an effect, for messages."""
    return " or ".join(_remedy(other, wanted) for other, wanted in unmet.items())


def _all_needs(name: str, declared: Declared) -> List[Needs]:
    """Everything that a flag needs: each of the mappings has to be met by one of its flags."""
    found: List[Needs] = []
    for registry in _REGISTRIES:
        declaring = [entry.name for entry in registry.values() if name in _flags_of(entry)]
        if declaring:
            instead = _present(declared[name].get("or_with"), declared)
            found.append({registry.flag[2:].replace("-", "_"): declaring, **instead})
    own = _present(declared[name].get("needs"), declared)
    return [*found, own] if own else found


def _present(needs: Optional[Needs], declared: Declared) -> Needs:
    """The needs of flags that the family has."""
    return {name: values for name, values in (needs or {}).items() if name in declared}


def _flags_of(entry: Any) -> List[str]:
    return [field.name for field in fields_of(entry.flags)] if entry.flags else []


def _matches(name: str, wanted: Any, cfg: Options) -> bool:
    if wanted is None:
        return option(cfg, name) not in (None, False, 0)
    return not set(_values(name, cfg)).isdisjoint(_choices(wanted))


def _choices(wanted: Any) -> Collection[Any]:
    return wanted() if callable(wanted) else wanted


def _values(name: str, cfg: Options) -> List[Any]:
    """The values of a flag; of ``--position-encoding`` the encodings on both sides."""
    if flag_of(name) != ENCODINGS.flag:
        return [option(cfg, name)]
    return names_in(",".join(side_encoding(cfg, side) for side in SIDES))


def _remedy(name: str, wanted: Any) -> str:
    values = " or ".join(map(str, _choices(wanted or ())))
    composite = flag_of(name) == ENCODINGS.flag
    return f"add {values}" if composite else f"give {flag_of(name)} {values}".rstrip()
