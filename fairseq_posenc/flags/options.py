"""fairseq's configurations and layers, for which it has no common types."""

from argparse import Namespace
from typing import Any, Dict

#: The sides of a model, as in the names of flags and parameters.
SIDES = ("encoder", "decoder")

#: Settings as attributes: an ``argparse.Namespace``, a ``DictConfig`` or a fairseq dataclass.
Options = Any
#: A layer or model of fairseq's, whose modules and dropouts are attributes.
Layer = Any


def option(options: Options, name: str, default: Any = None) -> Any:
    """A setting by its name, or *default* where the configuration does not have it.

    Older checkpoints, other tasks and commands other than training lack some of the flags.
    """
    return getattr(options, name, default)


def by_name(settings: Any) -> Dict[str, Any]:
    """Settings (a namespace, dictionary or ``DictConfig``) in a new dictionary; None has none."""
    if isinstance(settings, Namespace):
        return dict(vars(settings))
    # items() of OmegaConf 2.0 fails on the settings of a Namespace
    return {name: settings.get(name) for name in settings or ()}
