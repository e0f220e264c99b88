"""Encoders and decoders, which work out positions once a forward pass."""
