"""Translation models as folders with code of their own."""
