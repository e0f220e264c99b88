"""Tokenizers of exported folders, which number text as fairseq does."""
