"""The head of pre-training on pairs of texts, and models that do not need it."""

import logging

from fairseq_posenc.loading.warm_start import State

logger = logging.getLogger(__name__)

#: The classification head of ``--task masked_lm_pairs``: are the texts of a pair as in the corpus?
RELATION_HEAD = "sentence_relation"


def leave_out_relation_head(state_dict: State, name: str) -> None:
    """Remove the parameters of :data:`RELATION_HEAD`, in place, for a model that does not need it.

    Args:
        state_dict: parameters of a checkpoint.
        name: of the model in it, empty if it is the whole.
    """
    prefix = f"{name}." if name else ""
    prefix += f"classification_heads.{RELATION_HEAD}."
    if [state_dict.pop(key) for key in list(state_dict) if key.startswith(prefix)]:
        logger.info("left out %s, which only --pairs needs", prefix[:-1])
