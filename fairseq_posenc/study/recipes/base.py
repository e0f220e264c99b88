"""Steps of a run, and those that all recipes have: training, averaging, validation."""

import argparse
import math
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.training import STARTS
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.logs import last_losses, read_speed, read_training
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.results import Measure

RUN = "{run}"  # stands for the folder of the run in commands
PLUG_IN = "{plug-in}"  # stands for the folder of the plug-in in commands
SEED = "{seed}"  # stands for the seed in the name of a checkpoint
CHECKPOINTS = "checkpoints"  # the folder of a run's checkpoints

Collect = Callable[[Path], Dict[str, Any]]


def _nothing(folder: Path) -> Dict[str, Any]:
    return {}


class Step(NamedTuple):
    """A part of a run that is done once."""

    name: str  # name of the step, whose output goes to ``NAME.log``
    words: Tuple[str, ...] = ()  # the command, or nothing for a step that only collects
    # reads what the step adds to the result from the files in the run's folder
    collect: Collect = _nothing
    inputs: Tuple[str, ...] = ()  # files of the run that the step reads
    trains: bool = False  # the step is a training, which resumes from its checkpoints
    place: str = CHECKPOINTS  # the folder of a training's checkpoints
    fresh: str = ""  # a folder to remove before the step is tried, where the step cannot resume
    on_device: bool = True  # the command takes ``--cpu``
    depends: Tuple[str, ...] = ()  # other files that decide the result
    # further texts that decide the result and are not in the command
    settings: Tuple[str, ...] = ()
    discards: str = ""  # a pattern of files to remove once the step is done
    stage: str = ""  # the stage that the step's time counts for; the step's name by default


class Recipe(NamedTuple):
    """A kind of experiment."""

    # the steps of a run, given the plan, the flags of fairseq-train and the seed
    steps: Callable[[Plan, Flags, int], List[Step]]
    until: str  # the step after which runs of a search can be compared
    measures: Callable[[Plan], Dict[str, Measure]]  # the scores that a plan can compare
    check: Callable[[Plan], None]  # raises UsageError unless the data that a plan names are there
    # the keys of a plan that have a meaning for this recipe and not for all recipes
    keys: Tuple[str, ...]
    # makes the data, where the recipe does that; those that are there stay
    prepare: Callable[[Plan], None] = lambda plan: None


LOSSES = (
    Measure("loss", "lower", "validation loss", "bits per token"),
    Measure("perplexity", "lower", "perplexity"),
)


def split_task(flags: Flags, usual: str) -> Tuple[List[str], Flags]:
    """The words that select a system's task, by default the *usual* one, and its other flags."""
    others = dict(flags)
    return ["--task", str(others.pop("--task", usual))], others


def fairseq(command: str, plan: Plan, *task: str, data: str = "") -> List[str]:
    """The first words of a command of fairseq: its name, data, plug-in and *task*.

    Args:
        task: words that select and set up the task.
        data: the data folder; that of the plan by default.
    """
    return [command, data or plan.data["folder"], "--user-dir", plan.user_dir or PLUG_IN, *task]


def training(
    plan: Plan,
    task: List[str],
    flags: Flags,
    seed: int,
    name: str = "train",
    place: str = CHECKPOINTS,
) -> Step:
    """The training of a model, whose data order depends on *seed* alone.

    Args:
        task: words that select and set up the task.
        flags: flags of the base and of the system; ``{seed}`` in the name of a checkpoint that
            the training starts from stands for *seed*.
        name: the name of the step.
        place: the folder of the checkpoints, inside the folder of the run.
    """
    starts = {f: str(flags[f]).replace(SEED, str(seed)) for f in STARTS if flags.get(f)}
    flags = {**flags, **starts}
    usual = {"--log-interval": "100", "--num-workers": "0", "--required-batch-size-multiple": "1"}
    # without --update-epoch-batch-itr, a resumed epoch has other batches than an uninterrupted one
    words = [
        *fairseq("fairseq-train", plan, *task),
        *("--save-dir", f"{RUN}/{place}", *words_of(merge(usual, flags))),
        *("--seed", str(seed), *budget(plan, flags), *_saving(plan)),
        *("--log-format", "json", "--update-epoch-batch-itr", "True"),
    ]
    collect, depends = partial(read_training, step=name), tuple(starts.values())
    return Step(name, tuple(words), collect, trains=True, place=place, depends=depends)


def speed_step(step: Step, updates: int) -> Step:
    """The first updates of a training, to measure its speed and memory."""
    short = ("--max-update", str(updates), "--log-interval", str(max(1, updates // 10)))
    words = (*step.words, *short, "--no-save", "--disable-validation")
    return Step("speed", words, read_speed)


def budget(plan: Plan, flags: Flags) -> List[str]:
    """The flags that end a training, the same for all systems.

    Raises:
        UsageError: a number of tokens is asked for, and batches do not have a fixed number.
    """
    ((kind, amount),) = plan.budget.items()
    if kind != "tokens":
        flag = {"updates": "--max-update", "epochs": "--max-epoch", "hours": "--stop-time-hours"}[
            kind
        ]
        return [flag, str(amount)]
    sizes = ("--batch-size", "--tokens-per-sample")
    if not all(map(flags.get, sizes)):
        raise UsageError(
            f"budget: tokens: {amount}: needs --batch-size and --tokens-per-sample in the base; "
            "give updates or epochs, which all systems fill with the same batches"
        )
    numbers = [whole_number(flags, flag, "base") for flag in sizes]
    per_update = math.prod([*numbers, passes_of(flags), plan.gpus])
    return ["--max-update", str(math.ceil(amount / per_update))]


def whole_number(flags: Flags, flag: str, where: str, default: int = 0) -> int:
    """The value of a flag that has to be a whole number above 0, the first one of a list like [4].

    Args:
        where: the key of the plan, for messages.
        default: the value where the flag is not given; 0 if the flag has to be given.

    Raises:
        UsageError: the value is something else.
    """
    value = flags.get(flag, default or "nothing")
    first = str(value).strip("[]() ").split(",")[0].strip()
    if isinstance(value, bool) or not (first.isdecimal() and int(first)):
        raise UsageError(f"{where}: {flag} {value}: expected a whole number above 0")
    return int(first)


def passes_of(flags: Flags, where: str = "base") -> int:
    """Passes that gather a batch: ``--update-freq``."""
    return whole_number(flags, "--update-freq", where, default=1)


def _saving(plan: Plan) -> List[str]:
    if "epochs" in plan.average:
        return ["--keep-last-epochs", str(plan.average["epochs"])]
    kept = plan.average.get("updates", 1)
    return ["--no-epoch-checkpoints", "--keep-interval-updates", str(kept)]


def checkpoint(plan: Plan, place: str = CHECKPOINTS) -> str:
    """The checkpoint that is scored, in the run's folder; *place* has those of its training."""
    averaged = any(count > 1 for count in plan.average.values())
    return f"{place}/checkpoint{'.avg' if averaged else '_last'}.pt"


def averaging(plan: Plan) -> List[Step]:
    """The average of the last checkpoints, if the plan asks for one."""
    steps = []
    for kind, count in plan.average.items():
        if count > 1:
            words = [
                *("fairseq-posenc", "average", "--inputs", f"{RUN}/{CHECKPOINTS}"),
                *(f"--num-{kind[:-1]}-checkpoints", str(count)),
                *("--output", f"{RUN}/{checkpoint(plan)}"),
            ]
            inputs = (f"{CHECKPOINTS}/checkpoint_last.pt",)
            steps.append(Step("average", tuple(words), inputs=inputs, on_device=False))
    return steps


def validation(
    plan: Plan,
    task: List[str],
    defaults: Mapping[str, Any],
    subset: str = "valid",
    name: str = "validate",
    place: str = CHECKPOINTS,
) -> Step:
    """The step *name*: the loss of the scored checkpoint on the part *subset* of the data."""
    scored = checkpoint(plan, place)
    words = [
        *fairseq("fairseq-validate", plan, *task),
        *("--path", f"{RUN}/{scored}", "--valid-subset", subset),
        *("--required-batch-size-multiple", "1", "--num-workers", "0", "--log-format", "json"),
        *words_of(merge(dict(defaults), plan.validate)),
    ]
    collect = partial(losses, step=name, subset=subset)
    return Step(name, tuple(words), collect, inputs=(scored,))


def losses(folder: Path, step: str, subset: str = "valid") -> Dict[str, Any]:
    """Loss and perplexity of a *subset*, which the log of fairseq-validate names."""
    return {"scores": last_losses(folder / f"{step}.log", subset)}


def parts_scored(plan: Plan, usual: str) -> Dict[str, str]:
    """The parts of the data that are scored, and what follows the names of their scores and steps.

    >>> parts_scored(Plan("x", "translation", {}, {}, {}, (), {}, subset=("test", "test1")), "test")
    {'test': '', 'test1': '_test1'}
    """
    names = plan.subset or (usual,)
    return {name: f"_{name}" if name != names[0] else "" for name in names}


def measures_of_parts(plan: Plan, usual: str, own: Sequence[Measure]) -> Dict[str, Measure]:
    """The measures *own* of every part of the data that is scored."""
    return {
        measure.name + suffix: measure._replace(
            name=measure.name + suffix,
            label=f"{measure.label}, {subset}" if plan.subset else measure.label,
        )
        for subset, suffix in parts_scored(plan, usual).items()
        for measure in own
    }


class Absent(UsageError):
    """A data folder is not there, without which commands can be shown, and not run."""


def need_files(plan: Plan, names: List[str], made_by: str) -> None:
    """Check that files of the data folder exist.

    Raises:
        Absent: there is no such folder.
        UsageError: naming a file that does not exist, and what makes it.
    """
    folder = Path(plan.data["folder"])
    if not folder.is_dir():
        raise Absent(f"data: {folder}: no such folder; make it with {made_by}")
    for name in names:
        if not (folder / name).is_file():
            raise UsageError(f"data: {folder}: has no {name}; make it with {made_by}")


def usual_measures(*more: Measure) -> Dict[str, Measure]:
    """Measures by name: *more*, then the losses."""
    return {measure.name: measure for measure in (*more, *LOSSES)}


def flags_of_model(flags: Flags) -> Flags:
    """The architecture, and the flags of a model that are not read from its checkpoint."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    from fairseq_posenc.models import family_of

    arch = str(flags.get("--arch"))
    family = family_of(arch)
    if family is not None:
        return {"--arch": family.model}
    stock = ARCH_MODEL_REGISTRY.get(arch)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    if stock is not None:  # the command line of an unknown architecture is refused later
        stock.add_args(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    own = {flag: value for flag, value in flags.items() if flag in known}
    return {"--arch": arch, **own}
