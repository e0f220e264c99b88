"""Declares, completes and checks the flags of the model families."""
