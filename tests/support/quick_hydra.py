"""Hydra, with a memory for what it otherwise repeats for every command line.

fairseq hands Hydra 300 to 350 settings for every command, nearly all of them at their defaults, and
the same few choices of task, model and so on.  Hydra 1.0, of official fairseq, has other internals
and is left as it is.
"""

import copy
import functools
from typing import Any, Dict, List, Tuple

from hydra._internal import config_repository
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

# by the choices of task, model and so on: which configurations they ask for, and their composition
_lists: Dict[Tuple[Any, ...], Any] = {}
_composed: Dict[int, Any] = {}
_groups: Dict[Tuple[Any, ...], bool] = {}
# what was replaced: its owner, its name, and what it was
replaced: List[Tuple[Any, str, Any]] = []


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
    store = ConfigStore.store

    def forgetful(self: Any, name: str, node: Any, group: Any = None, *args: Any, **named: Any):
        for key in [key for key in _lists if group is None or (group, name) in key[2]]:
            del _lists[key]
        for key in [key for key in _groups if group is None or key[1] == group]:
            del _groups[key]
        store(self, name, node, group, *args, **named)

    _replace(ConfigStore, "store", forgetful)


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

    def composed(self: Any, defaults: Any, repo: Any) -> Any:
        if id(defaults) not in _composed:  # a list is kept with its composition
            _composed[id(defaults)] = defaults, compose(self, defaults, repo)
        return copy.deepcopy(_composed[id(defaults)][1])

    _replace(ConfigLoaderImpl, "_compose_config_from_defaults_list", composed)
