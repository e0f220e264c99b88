"""Random positions in training, and position rules for texts with segments or numbers."""
