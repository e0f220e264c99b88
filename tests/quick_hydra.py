"""Hydra, with a memory for what it otherwise repeats for every command line.

fairseq hands Hydra 300 to 350 settings for every command, nearly all of them at their defaults.
Hydra 1.0, of official fairseq, has other internals and is left as it is.
"""

import copy
import functools
from typing import Any

from hydra._internal import config_repository
from hydra.core.override_parser.overrides_parser import OverridesParser


def remember() -> None:
    """Parse equal settings once, and copy Hydra's list of sources without what it holds."""
    repository = getattr(config_repository, "CachingConfigRepository", None)
    if repository is None:
        return
    parse = functools.lru_cache(maxsize=None)(OverridesParser.parse_rule)
    parser = OverridesParser.create()

    def parse_rule(self: Any, text: str, rule: str) -> Any:
        return copy.copy(parse(parser, text, rule))

    def __init__(self: Any, delegate: Any) -> None:
        self.delegate, self.cache = copy.copy(delegate), {}

    OverridesParser.parse_rule = parse_rule
    repository.__init__ = __init__
