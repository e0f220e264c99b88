"""Errors, files, optional packages and versions: helpers that every other folder may import."""
