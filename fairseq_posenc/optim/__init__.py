"""Optimisers that fairseq lacks; importing this registers them with fairseq."""

from fairseq_posenc.optim import amos

__all__ = ["amos"]
