"""For tools that expect this file; everything is in pyproject.toml."""

from setuptools import setup

setup()
