"""Speeds up Hydra: configurations are composed once, and only what differs is set anew.

For every command, fairseq passes 300 to 350 settings to Hydra, nearly all with default values, and
a few choices of task, model and so on, which are often the same.  Hydra 1.0, which official fairseq
uses, has different internals and is left unchanged.
"""

import contextlib
import copy
import functools
import io
import pickle
from pathlib import Path
from typing import Any, Callable

import hydra
from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf


def copier(cfg: Any) -> Callable[[], Any]:
    """A function that returns copies of a configuration, ten times as fast as ``copy.deepcopy``."""
    kept = {}  # classes, because fairseq's enumerations cannot be imported by their names
    file = io.BytesIO()

    class Writer(pickle.Pickler):
        def persistent_id(self, x: Any) -> Any:
            return id(kept.setdefault(id(x), x)) if isinstance(x, type) else None

    class Reader(pickle.Unpickler):
        persistent_load = kept.__getitem__

    Writer(file, -1).dump(cfg)
    return lambda: Reader(io.BytesIO(file.getvalue())).load()


def remember() -> None:
    """Make Hydra start from the configuration of earlier equal choices, and its settings."""
    if hydra.__version__ < "1.1" or utils.compose.__name__ == "composed":  # called before
        return

    apply = ConfigLoaderImpl._apply_overrides_to_config
    compose, store = utils.compose, ConfigStore.store  # type: Any, Any
    parse = functools.lru_cache(maxsize=None)(OverridesParser.create().parse_override)
    folder = str(Path(utils.__file__).resolve().parents[1] / "config")

    def update(cfg: Any, settings: Any) -> Any:
        apply([copy.copy(parse(text)) for text in settings], cfg)
        return cfg

    @functools.lru_cache(maxsize=None)
    def chosen(name: str, choices: Any) -> Any:
        with hydra.initialize_config_dir(config_dir=folder):
            return copier(compose(name, overrides=list(choices), strict=True))

    first, created = {}, {}  # type: Any, Any

    def composed(name: str, overrides: Any, strict: bool) -> Any:
        choices = tuple(text for text in overrides if "." not in text.partition("=")[0])
        settings = [text for text in overrides if text not in choices]
        # a dictionary does not replace an earlier one, but is merged with it
        plain = {text: text.partition("=")[0] for text in settings if "{" not in text}
        key = (name, choices, frozenset(plain.values()))
        if key not in first:
            first[key] = copier(update(chosen(name, choices)(), plain)), set(plain)
        copied, known = first[key]
        cfg = update(copied(), [text for text in settings if text not in known])
        OmegaConf.set_struct(cfg, strict)
        return cfg

    class Quick(OmegaConf):
        @staticmethod
        def create(content: Any) -> Any:
            """The configuration that OmegaConf creates from the groups of settings in *content*."""
            # lists, and groups that are empty or None, are part of the key; the rest is set below
            groups = {g: x if isinstance(x, dict) and x else {"": [x]} for g, x in content.items()}
            flat = {(group, name): x for group in groups for name, x in groups[group].items()}
            key = tuple((at, isinstance(x, (list, dict)) and repr(x)) for at, x in flat.items())
            if key not in created:
                created[key] = copier(OmegaConf.create(content)), flat
            copied, before = created[key]
            cfg = copied()
            for (group, name), x in flat.items():
                if repr(x) != repr(before[group, name]):  # unlike !=, tells 1 from True
                    cfg[group][name] = x
            return cfg

    def stored(*args: Any, **named: Any) -> None:
        chosen.cache_clear()
        first.clear()
        store(*args, **named)

    utils.initialize = lambda **_: contextlib.nullcontext()  # searches the stack for its caller
    utils.compose, utils.OmegaConf, ConfigStore.store = composed, Quick, stored
