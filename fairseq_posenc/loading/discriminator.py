"""The discriminator of an ELECTRA checkpoint as a masked language model."""

import logging
from typing import Dict, Mapping

from torch import Tensor

logger = logging.getLogger(__name__)

#: parameters that only pre-training needs
PRETRAINING = ("generator.", "replaced_head.")
_HEAD, _EMBEDDING = "encoder.lm_head.", "encoder.sentence_encoder.embed_tokens.weight"


def take_discriminator(state: Dict[str, Tensor], name: str, own: Mapping[str, Tensor]) -> None:
    """Leave out of a checkpoint, in place, the generator that the model to load lacks.

    A discriminator has no head that predicts tokens: that of the model stays as initialised, its
    projection tied to the embeddings of the checkpoint.

    Args:
        state: parameters of the checkpoint by name.
        name: prefix of the model's parameters in it, without the dot.
        own: parameters of the model that is loaded.
    """
    prefix = f"{name}." if name else ""
    starts = tuple(prefix + start for start in PRETRAINING)
    unknown = [key for key in state if key.startswith(starts) and key[len(prefix) :] not in own]
    if not unknown:
        return
    for key in unknown:
        del state[key]
    for key, value in own.items():
        if key.startswith(_HEAD):
            tied = key == f"{_HEAD}weight"
            state.setdefault(prefix + key, state[prefix + _EMBEDDING] if tied else value)
    logger.info("took the discriminator of the checkpoint, and left out its generator")
