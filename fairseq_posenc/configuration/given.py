"""Flags that a user gave and that have no effect, such as ``--rotary-base`` with ALiBi.

An ablation over such a flag would compare identical models.  Which flags have an effect follows
from the declarations: a flag of a registry's entry needs that entry, and others name what they need
(``needs`` of :func:`~fairseq_posenc.flags.settings.setting`).  Only what a user gave is checked:
not a preset, nor a default, nor what fine-tuning or a checkpoint brings.
"""

import contextlib
import dataclasses
import logging
from argparse import Namespace
from typing import Any, Collection, Iterator, List, Mapping, Optional

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.resolve import is_complete
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS, all_encodings
from fairseq_posenc.encodings.position_ids import POSITION_RULES
from fairseq_posenc.encodings.random_positions import SAMPLERS
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.registry import Registry, fields_of
from fairseq_posenc.flags.settings import Needs, refuse_empty
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS

logger = logging.getLogger(__name__)

_REGISTRIES: List[Registry[Any]] = [
    *(ENCODINGS, ATTENTIONS, NORMS, FEED_FORWARDS),
    *(POSITION_RULES, SAMPLERS),
]


@contextlib.contextmanager
def checking_given(cfg: Options, family: type, preset: Mapping[str, Any]) -> Iterator[None]:
    """A context in which *cfg* is completed; the flags in it before are those that were given.

    A value that equals the default or that of *preset* is accepted anyway, since scripts may give
    it explicitly.

    Args:
        cfg: flat configuration; nothing is checked if it is complete, as in a checkpoint.
        preset: the settings of the architecture, which *cfg* may already contain.

    Raises:
        UsageError: a flag is empty, or has no effect on the model.
    """
    fields = {field.name: field for field in dataclasses.fields(family)}
    present = {f.metadata["formerly"]: name for name, f in fields.items() if _formerly(f)}
    fresh = not is_complete(cfg)
    given = [name for name in fields if option(cfg, name) is not None] if fresh else []
    for name in given:
        if "former_values" in fields[name].metadata:  # declared by setting, so not fairseq's
            refuse_empty(name, option(cfg, name))
    yield
    said = []
    for name in dict.fromkeys(present.get(name, name) for name in given):
        value = option(cfg, name)
        if value in (None, fields[name].metadata.get("default"), preset.get(name)):
            continue
        unmet = _unmet(name, cfg, fields)
        if unmet is None:
            continue
        if name not in SIZES or option(cfg, "layer") != "gated":
            raise UsageError(_message(name, value, unmet, cfg))
        said.append(f"{flag_of(name)} {value}")
    if said:
        logger.warning("--layer gated: %s: no effect on gated attention units", ", ".join(said))


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
    fields = {field.name: field for field in dataclasses.fields(family)}
    unmet = _unmet(name, cfg, fields)
    return None if unmet is None else _lacking(unmet, cfg)


def _formerly(field: "dataclasses.Field[Any]") -> bool:
    return field.metadata.get("formerly") is not None


def _unmet(name: str, cfg: Options, fields: Mapping[str, Any]) -> Optional[Needs]:
    """The needs that *cfg* does not meet and that leave the flag *name* without effect, or None."""
    for needs in _all_needs(name, fields):
        inner = []
        for other in needs:
            reason = _unmet(other, cfg, fields)
            if reason is None and _matches(other, needs[other], cfg, fields):
                break
            inner.append(reason)
        else:
            return inner[0] or needs
    return None


def _all_needs(name: str, fields: Mapping[str, Any]) -> List[Needs]:
    """Everything that a flag needs: each of the mappings has to be met by one of its flags."""
    found: List[Needs] = []
    for registry in _REGISTRIES:
        declaring = [entry.name for entry in registry.values() if name in _flags_of(entry)]
        if declaring:
            instead = _present(fields[name].metadata.get("or_with"), fields)
            found.append({registry.flag[2:].replace("-", "_"): declaring, **instead})
    own = _present(fields[name].metadata.get("needs"), fields)
    return [*found, own] if own else found


def _present(needs: Optional[Needs], fields: Mapping[str, Any]) -> Needs:
    """The needs of flags that the family has."""
    return {name: values for name, values in (needs or {}).items() if name in fields}


def _flags_of(entry: Any) -> List[str]:
    return [field.name for field in fields_of(entry.flags)] if entry.flags else []


def _matches(name: str, wanted: Any, cfg: Options, fields: Mapping[str, Any]) -> bool:
    if wanted is None:
        return option(cfg, name) not in (None, False, 0)
    return not set(_values(name, cfg)).isdisjoint(_choices(wanted))


def _choices(wanted: Any) -> Collection[Any]:
    return wanted() if callable(wanted) else wanted


def _values(name: str, cfg: Options) -> List[Any]:
    """The values of a flag; of ``--position-encoding`` the encodings on both sides."""
    if flag_of(name) != ENCODINGS.flag:
        return [option(cfg, name)]
    return [e.name for e in all_encodings(",".join(side_encoding(cfg, side) for side in SIDES))]


def _message(name: str, value: object, unmet: Needs, cfg: Options) -> str:
    where = _lacking(unmet, cfg)
    what = " or ".join(_remedy(other, wanted) for other, wanted in unmet.items())
    given = flag_of(name) if value is True else f"{flag_of(name)} {value}"
    return f"{given}: has no effect {where}; drop it, or {what}"


def _lacking(unmet: Needs, cfg: Options) -> str:
    """Name what a flag has no effect with, or without, for messages."""
    first = next(iter(unmet))  # the others are alternatives to it
    now = "+".join(map(str, _values(first, cfg)))
    return f"without {flag_of(first)}" if unmet[first] is None else f"with {flag_of(first)} {now}"


def _remedy(name: str, wanted: Any) -> str:
    values = " or ".join(map(str, _choices(wanted or ())))
    composite = flag_of(name) == ENCODINGS.flag
    return f"add {values}" if composite else f"give {flag_of(name)} {values}".rstrip()
