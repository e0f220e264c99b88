"""Types of what comes from fairseq: configurations, and layers that carry no types."""

from typing import Any, Protocol


class Layer(Protocol):
    """A layer of fairseq's, whose sub-layers and dropouts are its attributes."""

    def __getattr__(self, name: str) -> Any:
        """A sub-layer, or what else the layer has."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Add one."""


class Options(Protocol):
    """Settings as attributes: an ``argparse.Namespace``, a ``DictConfig``, a dataclass of fairseq.

    The attributes are the flags that the model families declare.
    """

    def __getattr__(self, name: str) -> Any:
        """The value of a setting."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Change a setting."""
