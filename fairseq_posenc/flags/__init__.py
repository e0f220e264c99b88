"""How a flag is declared: its help, default, range and role, and when it has no effect."""
