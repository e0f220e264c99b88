"""Hydra, with a memory for what it otherwise repeats for every command line.

fairseq hands Hydra 300 to 350 settings for every command, nearly all of them at their defaults, and
the same few choices of task, model and so on.  Hydra 1.0, of official fairseq, has other internals
and is left as it is.
"""

import copy
import functools
import inspect
import sys
import types
from typing import Any, Dict, List, NamedTuple, Tuple

from hydra._internal import config_repository, utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf.dictconfig import DictConfig
from omegaconf.nodes import ValueNode
from omegaconf.omegaconf import OmegaConf, open_dict

# by the choices of task, model and so on: which configurations they ask for, and their composition
_lists: Dict[Tuple[Any, ...], Any] = {}
_composed: Dict[Tuple[int, bool], Any] = {}
_groups: Dict[Tuple[Any, ...], bool] = {}
# true in the process of one command, which hands out what is remembered instead of copies of it
_ended_soon = False
# what was replaced: its owner, its name, and what it was
replaced: List[Tuple[Any, str, Any]] = []


def hand_out() -> None:
    """Hand out every composition once, instead of copies: for a process that soon ends."""
    global _ended_soon
    _ended_soon = True


def _replace(owner: Any, name: str, new: Any) -> None:
    replaced.append((owner, name, vars(owner)[name]))
    setattr(owner, name, new)


def remember() -> None:
    """Parse equal settings once, and compose the configuration of equal choices once."""
    if replaced or not hasattr(config_repository, "CachingConfigRepository"):
        return
    _parse_once()
    _choose_once()
    _compose_once()
    _change_only_what_differs()
    _leave_out_what_is_thrown_away()
    _replace(utils, "inspect", types.SimpleNamespace(**{**vars(inspect), "stack": _callers}))
    store = ConfigStore.store

    def forgetful(self: Any, name: str, node: Any, group: Any = None, *args: Any, **named: Any):
        for key in [key for key in _lists if group is None or (group, name) in key[2]]:
            del _lists[key]
        for key in [key for key in _groups if group is None or key[1] == group]:
            del _groups[key]
        store(self, name, node, group, *args, **named)

    _replace(ConfigStore, "store", forgetful)


class _Caller(NamedTuple):
    """What Hydra reads of an entry of ``inspect.stack()``."""

    frame: Any
    filename: str
    lineno: int
    function: str


def _callers() -> List[_Caller]:
    """``inspect.stack()`` without the source around each call, which takes as long as a parse."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        found.append(_Caller(frame, code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return found


def _parse_once() -> None:
    parse = functools.lru_cache(maxsize=None)(OverridesParser.parse_rule)
    parser = OverridesParser.create()

    def parse_rule(self: Any, text: str, rule: str) -> Any:
        return copy.copy(parse(parser, text, rule))

    _replace(OverridesParser, "parse_rule", parse_rule)


def _choose_once() -> None:
    from hydra._internal import defaults_list  # not in Hydra 1.0

    repository = config_repository.CachingConfigRepository
    create = defaults_list._create_defaults_list

    def places(repo: Any) -> Tuple[str, ...]:
        return tuple(f"{source.provider} {source.path}" for source in repo.get_sources())

    def __init__(self: Any, delegate: Any) -> None:
        self.delegate, self.cache = copy.copy(delegate), {}
        self.sources = places(self)

    def initialize_sources(self: Any, path: Any) -> None:
        self.delegate.initialize_sources(path)
        self.sources = places(self)

    def group_exists(self: Any, config_path: str) -> bool:
        key = (self.sources, config_path)
        if key not in _groups:
            _groups[key] = self.delegate.group_exists(config_path)
        return _groups[key]

    def create_once(repo: Any, config_name: Any, overrides: Any, *args: Any, **named: Any) -> Any:
        choices = tuple(sorted(overrides.override_choices.items()))
        key = (repo.sources, config_name, choices, args, tuple(named.items()))
        if overrides.append_group_defaults or overrides.deletions:
            return create(repo, config_name, overrides, *args, **named)
        if key not in _lists:
            found = create(repo, config_name, overrides, *args, **named)
            _lists[key] = found, {**vars(overrides), "config_overrides": None}
        found, after = _lists[key]
        vars(overrides).update({**after, "config_overrides": overrides.config_overrides})
        return found

    for method in (__init__, group_exists, initialize_sources):
        _replace(repository, method.__name__, method)
    _replace(defaults_list, "_create_defaults_list", create_once)


def _compose_once() -> None:
    compose = ConfigLoaderImpl._compose_config_from_defaults_list

    def composed(self: Any, defaults: Any, repo: Any, with_hydra: bool = True) -> Any:
        key = id(defaults), with_hydra
        if key not in _composed:  # a list is kept with its composition
            found = compose(self, defaults, repo)
            if not with_hydra:
                with open_dict(found):
                    del found["hydra"]
            _composed[key] = defaults, found
        return _composed.pop(key)[1] if _ended_soon else copy.deepcopy(_composed[key][1])

    _replace(ConfigLoaderImpl, "_compose_config_from_defaults_list", composed)


def _leave_out_what_is_thrown_away() -> None:
    """Hydra's own settings, among them a list of all others, when fairseq asks for a configuration.

    They matter to ``fairseq-hydra-train`` alone, where Hydra reads the command line.
    """
    from hydra._internal.defaults_list import create_defaults_list  # not in Hydra 1.0

    load = ConfigLoaderImpl._load_configuration_impl

    def loaded(
        self: Any, config_name: Any, overrides: Any, run_mode: Any, from_shell: bool = True, **named
    ) -> Any:
        if from_shell or any(override.startswith("hydra") for override in overrides):
            return load(self, config_name, overrides, run_mode, from_shell, **named)
        parsed, repo = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        self.validate_sweep_overrides_legal(parsed, run_mode=run_mode, from_shell=from_shell)
        asked = create_defaults_list(repo, config_name, parsed, True, False)
        config = self._compose_config_from_defaults_list(asked.defaults, repo, with_hydra=False)
        OmegaConf.set_struct(config, True)
        self._apply_overrides_to_config(asked.config_overrides, config)
        return config

    _replace(ConfigLoaderImpl, "_load_configuration_impl", loaded)


def _change_only_what_differs() -> None:
    apply = ConfigLoaderImpl._apply_overrides_to_config

    def differs(override: Any, node: Any) -> bool:
        if override.is_add() or override.is_force_add() or override.is_delete():
            return True
        for key in override.key_or_group.split("."):
            node = node._get_node(key, False) if isinstance(node, DictConfig) else None
        value = override.value()
        known = isinstance(node, ValueNode) and type(node._value()) is type(value)
        return not known or node._value() != value

    def apply_some(overrides: Any, cfg: Any) -> None:
        apply([override for override in overrides if differs(override, cfg)], cfg)

    _replace(ConfigLoaderImpl, "_apply_overrides_to_config", staticmethod(apply_some))
