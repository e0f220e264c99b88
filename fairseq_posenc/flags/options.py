"""Protocols for fairseq's untyped configurations and layers."""

from typing import Any, Protocol

#: The sides of a model, as in the names of flags and parameters.
SIDES = ("encoder", "decoder")


class Layer(Protocol):
    """A fairseq layer, whose sub-layers and dropouts are attributes."""

    def __getattr__(self, name: str) -> Any:
        """A sub-layer or another attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Add or replace an attribute."""


class Options(Protocol):
    """Settings as attributes: an ``argparse.Namespace``, a ``DictConfig`` or a fairseq dataclass.

    The attributes are the flags that the model families declare.
    """

    def __getattr__(self, name: str) -> Any:
        """The value of a setting."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Change a setting."""


def option(options: Options, name: str, default: Any = None) -> Any:
    """A setting by its name, or *default* where the configuration does not have it.

    Older checkpoints, other tasks and commands other than training lack some of the flags.
    """
    return getattr(options, name, default)
