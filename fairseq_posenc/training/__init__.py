"""Criterions and optimisers that fairseq lacks."""
