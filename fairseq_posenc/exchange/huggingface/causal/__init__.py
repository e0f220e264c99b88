"""Language models as classes of transformers."""
