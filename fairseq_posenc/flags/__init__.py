"""How flags are declared: help text, default, range, role, and what a flag needs to have effect."""
