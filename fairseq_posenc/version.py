"""The version of the package; imports nothing."""

__version__ = "0.2.0"
