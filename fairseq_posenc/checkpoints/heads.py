"""The heads of pre-training, and models that do not need them."""

import logging

from fairseq_posenc.checkpoints.warm_start import State

logger = logging.getLogger(__name__)

#: The classification head of ``--task masked_lm_pairs``: are the texts of a pair as in the corpus?
RELATION_HEAD = "sentence_relation"
#: The head of its ``--span-boundary-objective``.
SPAN_BOUNDARY_HEAD = "span_boundary_head"


def leave_out_head(state_dict: State, name: str, head: str, flag: str) -> None:
    """Remove the parameters of a head, in place, for a model that does not need it.

    Args:
        state_dict: parameters of a checkpoint.
        name: of the model in it, empty if it is the whole.
        head: name of the head.
        flag: that of pre-training which needs it.
    """
    prefix = f"{name}.{head}." if name else f"{head}."
    if [state_dict.pop(key) for key in list(state_dict) if key.startswith(prefix)]:
        logger.info("left out %s, which only %s needs", prefix[:-1], flag)
