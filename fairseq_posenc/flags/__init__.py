"""How a flag is declared: its help, default, range and role, and what has no effect."""
