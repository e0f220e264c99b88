"""Layers: norms, feed-forward, initialisation, sharing and the Transformer layers themselves."""
