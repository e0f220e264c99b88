"""Encoders and decoders, which compute positions once per forward pass."""
