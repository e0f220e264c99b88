"""Positions that follow a rule: which models can have them."""

from fairseq_posenc.attention.kernels import refuse_any_order
from fairseq_posenc.configuration.features import Completed, register_feature
from fairseq_posenc.encodings.position_ids import FLAG, POSITION_RULES, check_position_ids
from fairseq_posenc.encodings.registry import PositionFlags


def check_positions(completed: Completed) -> None:
    """Refuse a rule that a stack does not have, or whose positions nothing is given."""
    cfg = completed.cfg
    if cfg.position_ids is None:
        return
    refuse_any_order(cfg, f"{FLAG} {cfg.position_ids}")
    for stack in completed.stacks:
        for name, encodings in completed.patterns[stack.side].compositions.items():
            check_position_ids(cfg, name, encodings, stack)


register_feature(PositionFlags, registries=[POSITION_RULES], check=check_positions)
