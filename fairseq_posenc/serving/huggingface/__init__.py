"""Tokenizers of transformers in model folders; imports neither PyTorch nor fairseq."""
