"""Timing training steps, generation and attention of models against each other."""
