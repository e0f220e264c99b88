"""Errors, optional packages, versions and files: what every other folder may use."""
