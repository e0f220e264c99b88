"""The flags of the model families, completed and checked."""
