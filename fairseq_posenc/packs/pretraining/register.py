"""Importing this registers the models, tasks and criterions."""

from fairseq_posenc.checkpoints.resuming import FIXED
from fairseq_posenc.models.masked_lm import register_pretraining
from fairseq_posenc.packs.pretraining import (  # noqa: F401 - importing registers
    electra,
    heads,
    mask_decoder,
    masked_lm_pairs,
)

register_pretraining(masked_lm_pairs.TASK, masked_lm_pairs.SAMPLES)
FIXED += [
    ("--pairs", "task", "pairs", ""),
    ("--unit", "task", "unit", ""),
    ("--static-masks", "task", "static_masks", ""),
    ("--masking", "task", "masking", ""),
    ("--span-boundary-objective", "task", "span_boundary_objective", ""),
]
