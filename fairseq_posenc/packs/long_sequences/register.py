"""Importing this registers the kernels, the stacks and the task."""

from fairseq import checkpoint_utils

from fairseq_posenc.checkpoints.averaging import IDENTICAL
from fairseq_posenc.extensions import register_extension
from fairseq_posenc.models.language_model import LANGUAGE_MODEL
from fairseq_posenc.packs.long_sequences import (  # noqa: F401 - importing registers
    bigbird,
    cosformer,
    funnel,
    language_modeling_with_memory,
    linformer,
    mixed_chunks,
    reformer,
    softmax_features,
    streams,
)

IDENTICAL.append(".self_attn.hashing.rotations")  # of Reformer, drawn from a seed
LANGUAGE_MODEL.tasks += (language_modeling_with_memory.TASK,)
register_extension(checkpoint_utils, "save_checkpoint", streams.gather_memories)
