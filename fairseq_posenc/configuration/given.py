"""Flags that a user gave and that have no effect, such as ``--rotary-base`` with ALiBi.

An ablation over such a flag would compare identical models.  Only what a user gave is refused, and
not a default; what a preset, a checkpoint or fine-tuning brings is left out of the configuration.
"""

import contextlib
import logging
from typing import Any, Iterator, Mapping

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.effect import declared_by, lacks, remedy, unmet_needs
from fairseq_posenc.configuration.resolve import is_complete, modernise, open_config
from fairseq_posenc.configuration.stock import SIZES
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import Needs, refuse_empty

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def checking_given(cfg: Options, family: type, preset: Mapping[str, Any]) -> Iterator[None]:
    """A context in which *cfg* is completed; the flags in it before are those that were given.

    A value that equals the default is accepted anyway, since scripts may give it explicitly.

    Args:
        cfg: flat configuration; nothing is checked if it is complete, as in a checkpoint.
        preset: settings that *cfg* may contain although nobody gave them.

    Raises:
        UsageError: a flag is empty, or has no effect on the model.
    """
    declared = declared_by(family)
    given = {}
    if not is_complete(cfg):
        for name, metadata in declared.items():
            if "former_values" in metadata:  # declared by setting, so not fairseq's
                refuse_empty(name, option(cfg, name))
        with open_config(cfg):
            modernise(cfg, family)
        given = {name: option(cfg, name) for name in declared}
    yield
    said = []
    for name, value in given.items():
        if value in (None, declared[name].get("default"), preset.get(name)):
            continue
        unmet = unmet_needs(name, cfg, declared)
        if unmet is None:
            continue
        if name not in SIZES or option(cfg, "layer") != "gated":
            raise UsageError(_message(name, value, unmet, cfg))
        said.append(f"{flag_of(name)} {value}")
    if said:
        logger.warning("--layer gated: %s: no effect on gated attention units", ", ".join(said))


def _message(name: str, value: object, unmet: Needs, cfg: Options) -> str:
    given = flag_of(name) if value is True else f"{flag_of(name)} {value}"
    return f"{given}: has no effect {lacks(unmet, cfg)}; drop it, or {remedy(unmet)}"
