"""Folders of transformers: the classes of its models by family, their tensors and tokenizers."""
