"""Translation models as classes of transformers."""
