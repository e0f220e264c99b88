"""Systems of the same number of parameters: the feed-forward layers take up the differences."""

import contextlib
from typing import Any, ContextManager, Dict

import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.checks import quiet, training_args
from fairseq_posenc.study.commands import Device
from fairseq_posenc.study.plan import Flags, Plan

SIDES = ("encoder", "decoder")
_STEP = 8  # sizes are multiples of this number, for which GPUs have fast kernels
#: The part of the baseline's parameters by which a matched system may differ.
TOLERANCE = 0.01


def match_parameters(plan: Plan) -> Plan:
    """The plan with feed-forward sizes such that all systems are as large as the baseline.

    The number of parameters is linear in the size of the feed-forward layers; where encoder and
    decoder have some, both change by the same amount.  Sizes are multiples of 8.

    Args:
        plan: a plan whose command lines have been checked, and whose data are there.

    Raises:
        UsageError: a system has no feed-forward layers, or would be without, or sizes of 8 more or
            less do not come near.
    """
    baseline = plan.baseline or next(iter(plan.systems))
    wanted = count_parameters(plan, baseline, {})
    systems: Dict[str, Flags] = {}
    for system, flags in plan.systems.items():
        found = count_parameters(plan, system, {})
        own = {} if found == wanted else _sizes(plan, system, found, wanted)
        systems[system] = {**flags, **own}
    return plan._replace(systems=systems)


def _sizes(plan: Plan, system: str, found: int, wanted: int) -> Flags:
    where = f"match: parameters: {system}"
    args = vars(training_args(plan, system, {}, Device()))
    sizes = {side: args.get(f"{side}_ffn_embed_dim") for side in SIDES}

    def widened(more: int) -> Flags:
        changed = {side: int(size) + more for side, size in sizes.items() if size}
        return {f"--{side}-ffn-embed-dim": str(size) for side, size in changed.items()}

    grown = count_parameters(plan, system, widened(_STEP)) - found
    if not grown:
        raise UsageError(f"{where}: has no feed-forward layers to adjust; drop match or the system")
    flags = widened(_STEP * round((wanted - found) / grown))
    if any(int(size) < _STEP for size in flags.values()):
        raise UsageError(
            f"{where}: has {found:,} parameters, too many for the {wanted:,} of the baseline by "
            "its feed-forward layers alone; make the system smaller, or the baseline larger"
        )
    reached = count_parameters(plan, system, flags)
    if abs(reached - wanted) > TOLERANCE * wanted:
        raise UsageError(
            f"{where}: would have {reached:,} parameters, and the baseline {wanted:,}: the models "
            f"are too small for steps of {_STEP} channels; give the sizes yourself"
        )
    return flags


def count_parameters(plan: Plan, system: str, more: Flags) -> int:
    """The parameters of a system's model, with *more* flags; shared ones count once."""
    args = training_args(plan, system, more, Device())
    with quiet(), _without_memory():
        settings: Any = convert_namespace_to_omegaconf(args)
        task = tasks.setup_task(settings.task)
        model = task.build_model(settings.model)
    return sum(parameter.numel() for parameter in model.parameters())


def _without_memory() -> ContextManager[Any]:
    """A context in which tensors have no content, if this PyTorch has one (2.0)."""
    if hasattr(torch, "set_default_device"):
        return torch.device("meta")
    return contextlib.nullcontext()
