"""What needs fairseq to be known of a plan: data, flags, systems that are the same, sizes."""

import contextlib
import io
import logging
import os
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, Optional, Set, Tuple

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.flags.usage import near
from fairseq_posenc.steps.training import STARTS, flags_in
from fairseq_posenc.study.commands import Device, command
from fairseq_posenc.study.flags import Flags, merge
from fairseq_posenc.study.plan import Plan, plan_of
from fairseq_posenc.study.recipes import RECIPES
from fairseq_posenc.study.recipes.base import Absent, whole_number
from fairseq_posenc.study.runs import spec_of

_PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-validate": options.get_validation_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-eval-lm": options.get_eval_lm_parser,
}
_FLOAT16 = ("--fp16", "--memory-efficient-fp16")
_OF_GPUS = (*_FLOAT16, "--bf16", "--amp", "--memory-efficient-bf16")
_NO_SETTINGS = ("arch", "_name", "save_dir", "user_dir")  # names and places decide nothing
_STEP = 8  # sizes are multiples of this number, for which GPUs have fast kernels
#: The part of the baseline's parameters by which a matched system may differ.
TOLERANCE = 0.01


def needs_gpu(plan: Plan) -> bool:
    """Whether a plan is meant for GPUs."""
    flags = [merge(plan.base, system) for system in plan.systems.values()]
    return plan.gpus > 1 or any(one.get(flag) for one in flags for flag in _OF_GPUS)


def check_plan(plan: Plan, device: Device, without_data: bool = False) -> List[str]:
    """Check everything that can be checked before the first training.

    Args:
        without_data: whether data may be absent, as where commands are only shown.

    Returns:
        comments on the data that are absent.

    Raises:
        UsageError: naming the system, the flag, and what would work.
    """
    absent: Dict[str, None] = {}
    recipe = RECIPES[plan.recipe]
    for key in {key for other in RECIPES.values() for key in other.keys} - set(recipe.keys):
        if getattr(plan, key):
            raise UsageError(f"{key}: has no meaning for the recipe {plan.recipe}; remove it")
    for system in plan.systems:
        try:
            recipe.check(plan_of(plan, system))
        except Absent as error:
            if not without_data:
                raise
            absent[f"# {error.message}"] = None
        for path in _absent_checkpoints(plan, system):
            message = f"systems: {system}: {path}: no such file to start from; train it first"
            if not without_data:
                raise UsageError(message)
            absent[f"# {message}"] = None
    known = recipe.measures(plan)
    for name in plan.measures:
        if name not in known and not absent:  # absent tasks have measures, too
            raise UsageError(f"measures: {name}: unknown" + near(name, list(known)))
    if not device.gpus:
        _refuse_half_precision(plan)
    _check_average(plan)
    seen: Dict[Tuple[str, str], str] = {}
    for system in plan.systems:
        for number, chosen in enumerate(_choices(plan)):  # what follows a training is the same
            settings = _settings_of(plan, system, chosen, device, whole=number == 0)
        other = seen.setdefault(settings, system)
        if other != system:
            raise UsageError(
                f"systems: {system}: is the same model as {other}, with the same settings; drop "
                "one, or change its flags"
            )
    return list(absent)


def _refuse_half_precision(plan: Plan) -> None:
    for system, own in plan.systems.items():
        flags = merge(plan.base, own)
        for flag in filter(flags.get, _FLOAT16):
            where = f"systems: {system}" if flag in own else "base"
            raise UsageError(f"{where}: {flag}: needs a GPU; drop it, or give --devices")


def _absent_checkpoints(plan: Plan, system: str) -> List[str]:
    """The checkpoints that runs of a system start from and that are not there."""
    steps = [step for seed in plan.seeds for step in spec_of(plan, system, seed, {}).steps]
    given = [flags_in(list(step.words)) for step in steps if step.trains]
    needed = dict.fromkeys(flags[flag] for flags in given for flag in STARTS if flag in flags)
    return [path for path in needed if not os.path.isfile(path)]


def _check_average(plan: Plan) -> None:
    """Refuse, before training, an average of more checkpoints than there will be, or of LoRA."""
    for kind, count in plan.average.items():
        for system, own in plan.systems.items():
            if count > 1 and merge(plan.base, own).get("--lora-base"):
                raise UsageError(
                    f"average: {kind}: {count}: checkpoints of {system} hold low-rank matrices "
                    "alone, which are not averaged; drop average, and the last one is scored"
                )
        every = 1
        if kind == "updates" and count > 1:
            if "--save-interval-updates" not in plan.base:
                raise UsageError(
                    f"average: updates: {count}: needs --save-interval-updates in the base"
                )
            every = whole_number(plan.base, "--save-interval-updates", "base")
        made = plan.budget.get(kind, count * every) // every
        if made < count:
            raise UsageError(
                f"average: {kind}: {count}: there will be {made} checkpoints; average fewer, or "
                "raise the budget"
            )


def _choices(plan: Plan) -> List[Dict[str, str]]:
    return [{flag: value} for flag, values in plan.search.items() for value in values] or [{}]


def _settings_of(
    plan: Plan, system: str, chosen: Mapping[str, str], device: Device, whole: bool
) -> Tuple[str, str]:
    """The model class and all settings of a system's training."""
    args = training_args(plan, system, chosen, device, whole)
    settings = {k: v for k, v in vars(args).items() if k not in _NO_SETTINGS}
    model = ARCH_MODEL_REGISTRY[args.arch].__name__
    return model, repr(sorted(settings.items(), key=lambda entry: entry[0]))


def training_args(
    plan: Plan, system: str, chosen: Mapping[str, str], device: Device, whole: bool = True
) -> Any:
    """The parsed command line of a system's training.

    Args:
        whole: whether to parse the command lines of the system's other steps, too.

    Raises:
        UsageError: a command line is wrong.
    """
    found: Optional[Any] = None
    spec = spec_of(plan, system, plan.seeds[0], chosen)
    stages: Set[str] = set()
    for step in spec.steps:
        words = command(step, spec, device)
        get_parser = _PARSERS.get(words[0]) if words else None
        skipped = step.fresh or step.stage in stages or not (whole or step.trains)
        if get_parser is None or skipped:
            continue
        stages.update(filter(None, [step.stage]))  # steps of a stage differ in data alone
        try:
            at = words.index("--user-dir")  # already loaded
            args = _parse(get_parser, [*words[1:at], *words[at + 2 :]])
        except UsageError as error:
            message = error.message
            raise UsageError(f"systems: {system}: {step.name}: {message}") from error
        if step.trains:
            found = args
    return found


def _parse(get_parser: Any, words: List[str]) -> Any:
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        return options.parse_args_and_arch(get_parser(), words)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context without the notices about flags and models that the runs log anyway."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


# --- systems of the same number of parameters


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
    with quiet():
        settings: Any = convert_namespace_to_omegaconf(args)
        task = tasks.setup_task(settings.task)
        try:
            with _without_memory():
                model = task.build_model(settings.model)
        except NotImplementedError:  # fairseq's initialisation of BERT copies what has no content
            model = task.build_model(settings.model)
    return sum(parameter.numel() for parameter in model.parameters())


def _without_memory() -> ContextManager[Any]:
    """A context in which tensors have no content, if this PyTorch has one (2.0)."""
    if hasattr(torch, "set_default_device"):
        return torch.device("meta")
    return contextlib.nullcontext()
