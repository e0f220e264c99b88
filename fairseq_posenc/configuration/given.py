"""Flags that a user gave and that have no effect, such as ``--rotary-base`` with ALiBi.

An ablation over such a flag would compare identical models.  Only what a user gave is refused, and
not a default; what a preset, a checkpoint or fine-tuning brings is left out of the configuration.
"""

import logging
from typing import Any, Dict, Mapping

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.effect import Declared, lacks, remedy, unmet_needs
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import refuse_empty

logger = logging.getLogger(__name__)


def given_flags(cfg: Options, declared: Declared, preset: Mapping[str, Any]) -> Dict[str, Any]:
    """The flags in *cfg*, before it is completed, that have other values than their defaults.

    A value that equals the default is accepted anyway, since scripts may give it explicitly.

    Args:
        preset: settings that *cfg* may contain although nobody gave them.

    Raises:
        UsageError: a flag of the plug-in is empty.
    """
    given = {}
    for name, metadata in declared.items():
        value = getattr(cfg, name, None)
        if value is None:
            continue
        if "traceable" in metadata:  # declared by setting, so not fairseq's
            refuse_empty(name, value)
        if value != metadata.get("default") and value != preset.get(name):
            given[name] = value
    return given


def check_given(given: Mapping[str, Any], cfg: Options, declared: Declared) -> None:
    """Refuse flags without an effect on the model.

    Args:
        given: the flags that were given.
        cfg: flat configuration, complete.

    Raises:
        UsageError: naming the flag and what it needs.
    """
    said = []
    for name, value in given.items():
        unmet = unmet_needs(name, cfg, declared)
        if unmet is None:
            continue
        shown = flag_of(name) if value is True else f"{flag_of(name)} {value}"
        if name not in SIZES or cfg.layer != "gated":
            raise UsageError(
                f"{shown}: has no effect {lacks(unmet, cfg)}; drop it, or {remedy(unmet)}"
            )
        said.append(f"{flag_of(name)} {value}")
    if said:
        logger.warning("--layer gated: %s: no effect on gated attention units", ", ".join(said))
