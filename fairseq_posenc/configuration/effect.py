"""Which settings have an effect on a model, and which have none, such as a rotary base with ALiBi.

This follows from the declarations of the flags.  A flag that belongs to an entry of a registry,
such as an encoding, needs that entry; other flags declare their ``needs``
(:func:`~fairseq_posenc.flags.settings.setting`).

An ablation over a flag without effect would compare identical models, so such a flag is refused if
the user set it to a value other than its default.  If the value comes from a preset, a checkpoint
or fine-tuning, it is replaced by the default.
"""

import dataclasses
import logging
from argparse import Namespace
from typing import Any, Dict, Iterator, List, Mapping, Optional

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.features import FEATURES, side_encoding
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.registry import names_in
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.registry import REPLACEMENTS, Registry
from fairseq_posenc.flags.settings import Needs, refuse_empty
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS

logger = logging.getLogger(__name__)
#: The declarations of a model's flags, by name.
Declared = Mapping[str, Mapping[str, Any]]


def declared_by(family: type) -> Declared:
    """The declarations of a family's flags."""
    return {field.name: field.metadata for field in dataclasses.fields(family)}


def has_effect(name: str, settings: Mapping[str, Any], family: type) -> bool:
    """True unless the flag *name* of *family* needs an encoding, attention or flag not in use."""
    return unmet_needs(name, Namespace(**settings), declared_by(family)) is None


def unused_settings(cfg: Options, declared: Declared) -> List[str]:
    """The settings of a trained model that have no effect on it, and differ from their defaults.

    fairseq's sub-layer sizes are left out: a checkpoint with their defaults would be no clearer.
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
    """The reason why a flag has no effect, such as ``with --attention local``."""
    first = next(iter(unmet))  # the other needs are alternatives
    now = "+".join(map(str, _values(first, cfg)))
    return f"without {flag_of(first)}" if unmet[first] is None else f"with {flag_of(first)} {now}"


def _all_needs(name: str, declared: Declared) -> Iterator[Needs]:
    """Yield the needs of a flag; of each mapping, at least one flag must have one of its values."""
    metadata = declared[name]
    registries: List[Registry[Any]] = [ENCODINGS, ATTENTIONS, NORMS, FEED_FORWARDS]
    registries += [registry for feature in FEATURES for registry in feature.registries]
    needs: List[Needs] = []
    for registry in registries:
        entries = registry.declaring(name)
        if entries:
            chosen = {registry.flag[2:].replace("-", "_"): entries}
            needs.append({**chosen, **(metadata.get("or_with") or {})})
    needs.append(metadata.get("needs") or {})
    reading = {each.flag: None for each in REPLACEMENTS if name in each.reads}
    for each in needs:
        if not declared.keys().isdisjoint(each):
            yield {n: values for n, values in {**each, **reading}.items() if n in declared}


def _matches(name: str, values: Any, cfg: Options) -> bool:
    if values is None:
        return getattr(cfg, name, None) not in (None, False, 0)
    return not set(_values(name, cfg)).isdisjoint(values() if callable(values) else values)


def _values(name: str, cfg: Options) -> List[Any]:
    """The value of a flag, in a list; for ``--position-encoding``, the encodings of both sides."""
    if name != "position_encoding":
        return [option(cfg, name)]
    return names_in(",".join([side_encoding(cfg, side) for side in SIDES]))


def given_flags(cfg: Options, declared: Declared, preset: Mapping[str, Any]) -> Dict[str, Any]:
    """The flags of an incomplete *cfg* that differ from their defaults; refuses empty values.

    A value equal to its default does not count as given, since scripts may spell out defaults.

    *preset* holds settings that *cfg* may contain although the user did not give them.
    """
    given = {}
    for name, metadata in declared.items():
        value = getattr(cfg, name, None)
        if value is None:
            continue
        if "traceable" in metadata:  # declared by ``setting``, so not one of fairseq's flags
            refuse_empty(name, value)
        if value != metadata.get("default") and value != preset.get(name):
            given[name] = value
    return given


def check_given(given: Mapping[str, Any], cfg: Options, declared: Declared) -> None:
    """Refuse *given* flags without an effect on the model of the complete *cfg*."""
    sizes = []
    for name, value in given.items():
        unmet = unmet_needs(name, cfg, declared)
        if unmet is None:
            continue
        shown = flag_of(name, value)
        if name not in SIZES or cfg.layer != "gated":
            remedy = " or ".join(_remedy(other, values) for other, values in unmet.items())
            raise UsageError(f"{shown}: has no effect {lacks(unmet, cfg)}; drop it, or {remedy}")
        sizes.append(shown)
    if sizes:
        logger.warning("--layer gated: %s: no effect on gated attention units", ", ".join(sizes))


def _remedy(name: str, values: Any) -> str:
    words = " or ".join(map(str, values() if callable(values) else values or ()))
    flag = "add" if name == "position_encoding" else f"give {flag_of(name)}"
    return f"{flag} {words}".rstrip()
