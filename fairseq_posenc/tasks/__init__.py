"""Tasks; importing this registers them with fairseq."""

from fairseq_posenc.tasks import masked_lm_pairs

__all__ = ["masked_lm_pairs"]
