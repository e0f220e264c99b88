"""For tools that expect this file; pyproject.toml has all settings."""

from setuptools import setup

setup()
