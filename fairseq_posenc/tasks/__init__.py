"""Tasks; importing this registers them with fairseq."""

from fairseq_posenc.tasks import candidate_ranking

__all__ = ["candidate_ranking"]
