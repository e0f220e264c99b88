"""The flags of random positions, and their checks."""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.attention import refuse_any_order
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.encodings import Pattern, Stack, is_relative
from fairseq_posenc.encodings.position_ids import (
    class_of_rule,
    refuse_uncounted,
    takers_of_positions,
)
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.packs.drawn_positions.samplers import (
    COUNTED,
    EVALUATION_POSITIONS,
    SAMPLERS,
    SPREAD,
    class_of_sampler,
    spreads,
)

#: With this flag and value, evaluation depends on N, so N and its sampler belong to the model.
_SPREAD = {"evaluation_positions": (SPREAD,)}


@dataclass
class DrawnFlags:
    """The flags of random positions."""

    random_positions: Optional[int] = setting(
        None,
        "N: draw random positions in training (see --position-sampler), so that positions of "
        "longer sequences are trained, too; at most the model's number of positions "
        "(--max-target-positions and the like)",
        role="training",
        model_with=_SPREAD,
        at_least=2,
        at_most=2**31 - 1,
        needs={"position_encoding": takers_of_positions},
    )
    position_sampler: Optional[str] = setting(
        "ordered",
        "what --random-positions N draws: ordered, a sorted sample of 0 … N-1 (Ruoss et al.); "
        "shift, for each sequence one number from 0 to N that is added to its positions (SHAPE)",
        role="training",
        model_with=_SPREAD,
        choices=SAMPLERS,
        needs={"random_positions": None},
    )
    evaluation_positions: Optional[str] = setting(
        COUNTED,
        "positions in evaluation, after training with --random-positions N: counted, 0, 1, 2 and "
        "so on; spread, in equal steps over 0 … N-1, which depend on the length of the whole text "
        "and therefore rule out generation with a cache",
        role="free",
        choices=EVALUATION_POSITIONS,
        needs={"random_positions": None},
        traceable=(COUNTED,),
    )


def check_drawn(completed: Completed) -> None:
    """Refuse random positions that have no effect or exceed the positions of a stack."""
    cfg = completed.cfg
    if cfg.random_positions is None:
        return
    flag = f"--random-positions {cfg.random_positions}"
    if spreads(cfg):
        _check_spread(cfg)
    elif cfg.position_ids is None and not class_of_sampler(cfg).same_rows:
        refuse_any_order(cfg, f"--position-sampler {cfg.position_sampler}")
    for stack in completed.stacks:
        pattern = completed.patterns[stack.side]
        for name, encodings in pattern.compositions.items():
            refuse_uncounted(flag, name, encodings)
        if cfg.random_positions > stack.max_positions:
            raise UsageError(
                f"{flag}: must be at most the {stack.max_positions} positions of the "
                f"{stack.side}; give a smaller number, or a model with more positions"
            )
        _check_shift(pattern, cfg, stack)


def _check_spread(options: Options) -> None:
    flag = f"--evaluation-positions {SPREAD}"
    refuse_any_order(options, flag)
    if not class_of_sampler(options).spreads:
        raise UsageError(
            f"{flag}: --position-sampler {options.position_sampler} trains with consecutive "
            "positions; drop --evaluation-positions, or give --position-sampler ordered"
        )
    if options.position_ids is not None:
        raise UsageError(
            f"{flag}: --position-ids {options.position_ids} gives positions by a rule, and these "
            "cannot be spread; drop one of the two"
        )


def _check_shift(pattern: Pattern, options: Options, stack: Stack) -> None:
    """Refuse a sampler that keeps distances if all layers depend on distances alone."""
    rule = options.position_ids
    if not class_of_sampler(options).keeps_distances:
        return
    if rule is not None and class_of_rule(rule).zero_is_none:  # tokens at 0 are not shifted
        return
    every = pattern.compositions.values()
    notices = not all(is_relative(encodings, options, stack) for encodings in every)
    if not notices and any(encoding.takes_positions for encoding in pattern.encodings):
        raise UsageError(
            f"--position-sampler {options.position_sampler}: moving all positions changes nothing "
            f"in --position-encoding {pattern.value}, which depends on distances alone; drop "
            "--random-positions, or give --position-sampler ordered, or an encoding such as "
            "sinusoidal or learned"
        )


def trained_length(cfg: Options, length: int) -> int:
    """The number of trained positions: *length*, or the N of random positions if it is larger."""
    return max(length, int(option(cfg, "random_positions") or 0))
