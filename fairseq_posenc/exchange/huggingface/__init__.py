"""Import and export of folders of transformers: tables of its classes, tensors, tokenizers."""
