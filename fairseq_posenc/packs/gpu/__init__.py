"""Ways of computing on a GPU that a model works without."""
