"""Which settings have an effect on a model, and which have none, such as a rotary base with ALiBi.

That follows from the declarations: a flag of a registry's entry needs that entry, and others name
what they need (``needs`` of :func:`~fairseq_posenc.flags.settings.setting`).
"""

import dataclasses
from argparse import Namespace
from typing import Any, Iterator, List, Mapping, Optional

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.configuration.features import FEATURES
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.registry import names_in
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.registry import Registry
from fairseq_posenc.flags.replacements import REPLACEMENTS
from fairseq_posenc.flags.settings import Needs
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS

#: The declarations of a model's flags, by name.
Declared = Mapping[str, Mapping[str, Any]]
_ENCODING = "position_encoding"


def declared_by(family: type) -> Declared:
    """The declarations of a family's flags."""
    return {field.name: field.metadata for field in dataclasses.fields(family)}


def has_effect(name: str, settings: Mapping[str, Any], family: type) -> bool:
    """True unless a setting needs an encoding, attention or flag that is not chosen.

    Args:
        name: the name of a flag of *family*.
    """
    return unmet_needs(name, Namespace(**settings), declared_by(family)) is None


def unused_settings(cfg: Options, declared: Declared) -> List[str]:
    """The settings of a trained model that have no effect on it, and not their defaults.

    fairseq's sizes of sub-layers are left out, since their defaults say no more than other values.

    Args:
        cfg: flat configuration, complete.
    """
    unused = []
    for name, metadata in declared.items():
        value = getattr(cfg, name, None)
        if value is None or value == metadata.get("default") or name in SIZES:
            continue
        if metadata.get("role") == "model" and unmet_needs(name, cfg, declared) is not None:
            unused.append(name)
    return unused


def unmet_needs(name: str, cfg: Options, declared: Declared) -> Optional[Needs]:
    """The needs that *cfg* does not meet and that leave the flag *name* without effect, or None."""
    for needs in _all_needs(name, declared):
        inner = []
        for other, values in needs.items():
            reason = unmet_needs(other, cfg, declared)
            if reason is None and _matches(other, values, cfg):
                break
            inner.append(reason or needs)
        else:
            return inner[0]
    return None


def lacks(unmet: Needs, cfg: Options) -> str:
    """Name what a flag has no effect with, or without, such as ``with --attention local``."""
    first = next(iter(unmet))  # the others are alternatives to it
    now = "+".join(map(str, _values(first, cfg)))
    return f"without {flag_of(first)}" if unmet[first] is None else f"with {flag_of(first)} {now}"


def remedy(unmet: Needs) -> str:
    """What to give so that a flag has an effect, for messages."""
    return " or ".join(_remedy(other, wanted) for other, wanted in unmet.items())


def _all_needs(name: str, declared: Declared) -> Iterator[Needs]:
    """Everything that a flag needs: each of the mappings has to be met by one of its flags."""
    for registry in _registries():
        declaring = registry.declaring(name)
        if declaring:
            instead = _present(declared[name].get("or_with"), declared)
            yield _or_read(
                name, {registry.flag[2:].replace("-", "_"): declaring, **instead}, declared
            )
    needs = _present(declared[name].get("needs"), declared)
    if needs:
        yield _or_read(name, needs, declared)


def _or_read(name: str, needs: Needs, declared: Declared) -> Needs:
    """*needs*, or one of the replacements that read the flag *name*."""
    reading = {each.flag: None for each in REPLACEMENTS if name in each.reads}
    return {**needs, **_present(reading, declared)} if reading else needs


def _present(needs: Optional[Needs], declared: Declared) -> Needs:
    """The needs of flags that the family has."""
    return {name: values for name, values in needs.items() if name in declared} if needs else {}


def _registries() -> List[Registry[Any]]:
    """The registries whose entries have flags."""
    features = [registry for feature in FEATURES for registry in feature.registries]
    return [ENCODINGS, ATTENTIONS, NORMS, FEED_FORWARDS, *features]


def _matches(name: str, values: Any, cfg: Options) -> bool:
    if values is None:
        return getattr(cfg, name, None) not in (None, False, 0)
    return not set(_values(name, cfg)).isdisjoint(values() if callable(values) else values)


def _values(name: str, cfg: Options) -> List[Any]:
    """The values of a flag; of ``--position-encoding`` the encodings on both sides."""
    if name != _ENCODING:
        return [option(cfg, name)]
    return names_in(",".join([side_encoding(cfg, side) for side in SIDES]))


def _remedy(name: str, wanted: Any) -> str:
    values = " or ".join(map(str, wanted() if callable(wanted) else wanted or ()))
    return f"add {values}" if name == _ENCODING else f"give {flag_of(name)} {values}".rstrip()
