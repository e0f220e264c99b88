"""Speeds up Hydra: configurations for equal choices of task, model and so on are composed once.

For every command, fairseq passes 300 to 350 settings to Hydra, nearly all with default values, and
a few choices of task, model and so on, which are often the same.  Hydra 1.0, which official fairseq
uses, has different internals and is left unchanged.
"""

import copy
import functools
from typing import Any, Tuple

from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf


@functools.lru_cache(maxsize=None)  # at most once
def remember() -> None:
    """Make Hydra compose the configuration of equal choices once, and parse equal settings once."""
    apply = getattr(ConfigLoaderImpl, "_apply_overrides_to_config", None)
    if apply is None:
        return
    compose, store, known = utils.compose, ConfigStore.store, {}  # type: Any, Any, Dict[Any, Any]
    parse = functools.lru_cache(maxsize=None)(OverridesParser.create().parse_override)

    def composed(name: str, overrides: Any, strict: bool) -> Any:
        choices: Tuple[str, ...] = tuple(x for x in overrides if "." not in x.partition("=")[0])
        if choices not in known:
            known[choices] = compose(name, overrides=list(choices), strict=True)
        cfg = copy.deepcopy(known[choices])
        apply([copy.copy(parse(text)) for text in overrides if text not in choices], cfg)
        OmegaConf.set_struct(cfg, strict)
        return cfg

    def stored(*args: Any, **named: Any) -> None:
        known.clear()
        store(*args, **named)

    utils.compose, ConfigStore.store = composed, stored
