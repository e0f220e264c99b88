"""Positions that follow a rule: which models can have them."""

from fairseq_posenc.attention.kernels import refuse_any_order
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import Completed, register_feature
from fairseq_posenc.encodings.position_ids import (
    FLAG,
    POSITION_RULES,
    PositionFlags,
    class_of_rule,
    refuse_uncounted,
)


def check_positions(completed: Completed) -> None:
    """Refuse a rule that a stack does not have, or whose positions nothing is given."""
    cfg = completed.cfg
    if cfg.position_ids is None:
        return
    flag = f"{FLAG} {cfg.position_ids}"
    refuse_any_order(cfg, flag)
    for stack in completed.stacks:
        for name, encodings in completed.patterns[stack.side].compositions.items():
            refuse_uncounted(flag, name, encodings)
            if cfg.untie_cls:
                raise UsageError(
                    "--untie-cls: [CLS] is known by its position 0, which others have under "
                    f"{flag}; drop one of the two"
                )
            class_of_rule(cfg.position_ids).check(cfg, stack, name, encodings)


register_feature(PositionFlags, registries=[POSITION_RULES], check=check_positions)
