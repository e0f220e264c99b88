"""Random positions, and rules that assign positions to segments and numbers."""
