"""Low-rank matrices that adapt a model."""
