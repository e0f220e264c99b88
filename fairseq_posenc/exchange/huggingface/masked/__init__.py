"""Masked language models and classifiers as classes of transformers."""
