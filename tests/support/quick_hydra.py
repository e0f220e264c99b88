"""The settings of a command line, which Hydra composes once for equal choices.

fairseq hands Hydra 300 to 350 settings for every command, nearly all of them at their defaults, and
the same few choices of task, model and so on.  Hydra 1.0, of official fairseq, has other internals
and is left as it is.
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
    """Compose the configuration of equal choices once, and parse equal settings once."""
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
