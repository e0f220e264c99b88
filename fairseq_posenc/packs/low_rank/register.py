"""Importing this registers the flags, the changes to models, and a mark of partial checkpoints."""

from fairseq.trainer import Trainer

from fairseq_posenc.checkpoints.reading import PARTIAL
from fairseq_posenc.checkpoints.resuming import FIXED
from fairseq_posenc.configuration.features import register_feature
from fairseq_posenc.extensions import register_extension
from fairseq_posenc.models.family import CHANGES
from fairseq_posenc.models.kinds import FOLLOWING
from fairseq_posenc.packs.low_rank.models import DIGEST, LowRankFlags, add_low_rank, check_low_rank
from fairseq_posenc.packs.low_rank.trained_parts import (
    TrainingFlags,
    check_parts,
    train_parts,
    validating_first,
)

register_feature(TrainingFlags, check=check_parts)
register_feature(LowRankFlags, check=check_low_rank)
CHANGES.extend((train_parts, add_low_rank))
register_extension(Trainer, "begin_epoch", validating_first)
PARTIAL[DIGEST] = (
    "holds low-rank matrices alone; first write the whole model with fairseq-posenc merge-lora"
)
FIXED.append(("--train-only", "model", "train_only", "reset_optimizer"))
FOLLOWING.extend(("train_only", "validate_at_start"))
