"""Adapters of the library PEFT."""
