"""The discriminator of an ELECTRA checkpoint as a masked language model."""

import logging

from torch import nn

from fairseq_posenc.checkpoints.heads import leave_out_head
from fairseq_posenc.checkpoints.warm_start import State

logger = logging.getLogger(__name__)

#: modules that only pre-training needs
PRETRAINING = ("generator", "replaced_head")
_HEAD, _EMBEDDING = "encoder.lm_head.", "encoder.sentence_encoder.embed_tokens.weight"


def take_discriminator(state: State, name: str, lm_head: nn.Module) -> None:
    """Leave the generator out of a checkpoint, in place, if it has one.

    A discriminator has no head that predicts tokens: that of the model stays as initialised, its
    projection tied to the embeddings of the checkpoint.

    Args:
        state: parameters of the checkpoint by name.
        name: prefix of the model's parameters in it, without the dot.
        lm_head: the head of the model that is loaded.
    """
    prefix = f"{name}." if name else ""
    if not any(key.startswith(f"{prefix}{PRETRAINING[0]}.") for key in state):
        return
    for module in PRETRAINING:
        leave_out_head(state, name, module, "--criterion replaced_token_detection")
    for key, value in lm_head.state_dict().items():
        tied = key == "weight"
        state.setdefault(prefix + _HEAD + key, state[prefix + _EMBEDDING] if tied else value)
    logger.info("took the discriminator of the checkpoint")
