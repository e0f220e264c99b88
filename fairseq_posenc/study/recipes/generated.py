"""Generated tasks: train on short inputs of each, and see at which length the models break."""

import re
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, Sequence, Tuple

from fairseq.models.transformer import DEFAULT_MAX_SOURCE_POSITIONS as SOURCE
from fairseq.models.transformer import DEFAULT_MAX_TARGET_POSITIONS as TARGET

from fairseq_posenc import generated  # noqa: F401 - registers the tasks
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import new_folder
from fairseq_posenc.generated.registry import (
    LANGUAGE_MODELING,
    MASKED_LM,
    TRANSLATION,
    without_controls,
)
from fairseq_posenc.generated.settings import Settings
from fairseq_posenc.generated.writing import (
    SIDES,
    longest_of_some,
    read_written,
    test_name,
    write_task,
)
from fairseq_posenc.steps.lock import hold
from fairseq_posenc.steps.markers import digest_of, digest_of_value
from fairseq_posenc.study.flags import DATA, Flags, merge
from fairseq_posenc.study.logs import fields_of, lines_of, read_training
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes.base import (
    CHECKPOINTS,
    LOSSES,
    Absent,
    Recipe,
    Step,
    training,
    validation,
    whole_number,
)
from fairseq_posenc.study.results import Measure

#: The percentage of right outputs up to which a model is not said to break.
ENOUGH = 90.0
_CRITERION = "answer_cross_entropy"
_SEARCHED = "trained"  # name of the step that tells the losses of all tasks
#: The words that set up fairseq's task, by the family of models.
_SETUP: Dict[str, Tuple[str, ...]] = {
    TRANSLATION: ("--source-lang", SIDES[0], "--target-lang", SIDES[1]),
    LANGUAGE_MODELING: ("--sample-break-mode", "eos"),
    MASKED_LM: ("--sample-break-mode", "eos"),
}
#: The flags that limit the symbols of a sample, in the order of ``Written.longest``, with their
#: defaults; 0 stands for a default that follows from the other flag.
_LIMITS: Dict[str, Tuple[Dict[str, int], ...]] = {
    TRANSLATION: ({"--max-source-positions": SOURCE}, {"--max-target-positions": TARGET}),
    LANGUAGE_MODELING: ({"--tokens-per-sample": 0, "--max-target-positions": 0},),
    MASKED_LM: ({"--tokens-per-sample": 0, "--max-positions": 0},),
}


def folder_of(plan: Plan, settings: Settings) -> str:
    """The folder of a task's data, named by the settings and by the folder of the user's tasks."""
    own = {"user_dir": digest_of(plan.user_dir)} if plan.user_dir else {}
    digest = digest_of_value({**settings._asdict(), **own})
    return str(Path(plan.data["folder"], f"{settings.task}-{digest[:8]}"))


def steps(plan: Plan, flags: Flags, seed: int) -> List[Step]:
    """The steps of a run: all trainings, then all tests."""
    tasks = plan.generated
    found = [_training(plan, one, flags, seed) for one in tasks]
    names = tuple(one.task for one in tasks)
    found.append(Step(_SEARCHED, collect=partial(totals, tasks=names)))
    found += [_test(plan, one) for one in tasks]
    return [*found, Step("score", collect=partial(score, tasks=tasks))]


def _setup(plan: Plan, settings: Settings) -> Tuple[Plan, List[str], str]:
    """The plan with the data of one task, the words of fairseq's task, and a place."""
    one = plan._replace(data={**plan.data, "folder": folder_of(plan, settings)})
    words = ["--task", settings.family, *_SETUP[settings.family]]
    return one, words, f"{CHECKPOINTS}/{settings.task}"


def _training(plan: Plan, settings: Settings, flags: Flags, seed: int) -> Step:
    one, words, place = _setup(plan, settings)
    chosen = merge({"--criterion": _CRITERION}, flags)
    step = training(one, words, chosen, seed, f"train-{settings.task}", place)
    nothing = Step("").collect  # the logs are read once all are there
    depends = (*step.depends, one.data["folder"])
    return step._replace(collect=nothing, stage="train", depends=depends)


def _test(plan: Plan, settings: Settings) -> Step:
    one, words, place = _setup(plan, settings)
    subsets = ",".join(map(test_name, settings.test_lengths))
    usual = {"--batch-size": 64}
    step = validation(one, words, usual, subsets, f"test-{settings.task}", place)
    collect = partial(lengths, settings=settings)
    return step._replace(
        collect=collect, stage="test", depends=(one.data["folder"],), discards=f"{place}/*.pt"
    )


def totals(folder: Path, tasks: Sequence[str]) -> Dict[str, Any]:
    """Sizes and times of all trainings together, and the mean of the losses, without controls.

    Raises:
        UsageError: a log is incomplete, or has no validation loss.
    """
    read = [read_training(folder, f"train-{task}") for task in tasks]
    chosen = without_controls(tasks)
    points = [
        {point["update"]: point for point in one["curve"]}
        for task, one in zip(tasks, read)
        if task in chosen
    ]
    curve = []
    for update in sorted(set(points[0]).intersection(*points[1:])):
        of_all = [one[update] for one in points]
        names = set(of_all[0]).intersection(*of_all[1:])
        curve.append({name: mean(float(one[name]) for one in of_all) for name in sorted(names)})
    losses = {}
    for task, one in zip(tasks, read):
        known = [point["valid_loss"] for point in one["curve"] if "valid_loss" in point]
        if not known:
            raise UsageError(f"{folder / f'train-{task}.log'}: has no validation loss")
        losses[f"{task}_loss"] = float(known[-1])
    memory = [one["peak_memory_mb"] for one in read if "peak_memory_mb" in one]
    return {
        "parameters": read[0]["parameters"],
        "updates": read[0]["updates"],
        "tokens": sum(one["tokens"] for one in read),
        "seconds": {"train": sum(one["seconds"]["train"] for one in read)},
        "curve": curve,
        **({"peak_memory_mb": max(memory)} if memory else {}),
        "scores": {"loss": round(mean(losses[f"{one}_loss"] for one in chosen), 4), **losses},
    }


def lengths(folder: Path, settings: Settings) -> Dict[str, Any]:
    """The percentage of right outputs by length, from the log of a test.

    Raises:
        UsageError: a length is missing.
    """
    path = folder / f"test-{settings.task}.log"
    lines = lines_of(path)
    found: Dict[str, float] = {}
    for length in settings.test_lengths:
        name = test_name(length)
        fields = next(filter(None, (fields_of(line, name) for line in lines)), {})
        if f"{name}_exact_match" not in fields:
            raise UsageError(f"{path}: says nothing of length {length}")
        found[str(length)] = float(fields[f"{name}_exact_match"])
    return {"lengths": {settings.task: found}}


def breaking_length(by_length: Dict[int, float]) -> int:
    """The longest length that, like all shorter ones, has enough right outputs; 0 if none has.

    >>> breaking_length({5: 100.0, 10: 93.0, 20: 50.0, 40: 95.0})
    10
    """
    longest = 0
    for length in sorted(by_length):
        if by_length[length] < ENOUGH:
            break
        longest = length
    return longest


def task_scores(by_length: Dict[int, float], trained: int) -> Dict[str, float]:
    """What is told of a task: within and beyond the training lengths, and where it breaks.

    Args:
        by_length: percentages of right outputs.
        trained: the longest length of the training.
    """
    return {
        "within": mean(value for length, value in by_length.items() if length <= trained),
        "beyond": mean(value for length, value in by_length.items() if length > trained),
        "breaking": breaking_length(by_length) / trained,
    }


def score(folder: Path, tasks: Sequence[Settings]) -> Dict[str, Any]:
    """The scores of each task, and their means over the tasks without controls."""
    scores: Dict[str, float] = {}
    by_task = {}
    for one in tasks:
        found = lengths(folder, one)["lengths"][one.task]
        known = {int(length): value for length, value in found.items()}
        by_task[one.task] = task_scores(known, max(one.lengths))
        scores.update({f"{one.task}_{name}": value for name, value in by_task[one.task].items()})
    chosen = without_controls(by_task)
    scores.update({name: mean(by_task[one][name] for one in chosen) for name in TOLD})
    return {"scores": {name: round(value, 4) for name, value in scores.items()}}


#: What is told of each task, and of the mean of all: a name, its unit, and a title for a column.
TOLD = {
    "breaking": ("breaking length over training length", "", "breaking length"),
    "beyond": ("right beyond the training lengths", "%", "right beyond (%)"),
    "within": ("right within the training lengths", "%", "right within (%)"),
}


def measures(plan: Plan) -> Dict[str, Measure]:
    """Right outputs within and beyond the training lengths, and where models break."""
    found = [Measure(name, "higher", label, unit) for name, (label, unit, _) in TOLD.items()]
    found.append(LOSSES[0])
    for one in plan.generated:
        found += [
            Measure(f"{one.task}_{name}", "higher", f"{one.task}: {label}", unit)
            for name, (label, unit, _) in TOLD.items()
        ]
        found.append(LOSSES[0]._replace(name=f"{one.task}_loss", label=f"{one.task}: loss"))
    return {measure.name: measure for measure in found}


def _check_settings(plan: Plan) -> None:
    if not plan.generated:
        raise UsageError("generated: missing; give for example {tasks: [copy, reverse]}")
    for one in plan.generated:
        try:
            one.check()
        except UsageError as error:
            message = re.sub("--([a-z-]+)", _key, error.message)
            raise UsageError(f"generated: {message}") from error
        trained = max(one.lengths)
        if len({length > trained for length in one.test_lengths}) < 2:
            raise UsageError(
                f"generated: {one.task}: test_lengths: need lengths up to and beyond {trained}, "
                "the longest of the training"
            )


def _key(flag: "re.Match[str]") -> str:
    """The key of a plan that is a flag of the command."""
    return flag.group(1).replace("-", "_")


def prepare(plan: Plan) -> None:
    """Write the data of all tasks that are not there.

    Raises:
        UsageError: a setting is one that a task does not have, or a folder cannot be written.
    """
    _check_settings(plan)
    with hold(Path(plan.data["folder"]), "study", waits=True):
        for one in plan.generated:
            if not Path(folder_of(plan, one)).is_dir():
                with new_folder(folder_of(plan, one)) as folder:
                    write_task(one, folder)


def check(plan: Plan) -> None:
    """Check settings and flags, and that the longest samples fit."""
    _check_settings(plan)
    if plan.average:
        raise UsageError("average: has no meaning for the recipe generated; remove it")
    systems = {name: merge(plan.base, own) for name, own in plan.systems.items()}
    for name, flags in systems.items():
        _check_flags(f"systems: {name}", flags, plan.generated[0].family)
    absent: List[str] = []
    for one in plan.generated:
        folder = folder_of(plan, one)
        if Path(folder).is_dir():
            longest = read_written(folder).longest
        else:
            absent.append(folder)
            longest = longest_of_some(one, max(*one.lengths, *one.test_lengths))
        for name, flags in systems.items():
            _check_limits(f"systems: {name}", flags, one, longest)
            _check_drawn(f"systems: {name}", flags, one)
    if absent:
        raise Absent(f"data: {absent[0]}: no such folder; the study makes it")


def _check_flags(where: str, flags: Flags, family: str) -> None:
    if DATA in flags:
        raise UsageError(f"{where}: data: the recipe generated has one folder; remove it")
    criterion = flags.get("--criterion", _CRITERION)
    if criterion != _CRITERION:
        raise UsageError(
            f"{where}: --criterion {criterion}: the recipe generated scores what {_CRITERION} "
            "logs; drop the flag"
        )
    if family != TRANSLATION:
        whole_number(flags, "--tokens-per-sample", where)


def _check_limits(where: str, flags: Flags, settings: Settings, longest: Sequence[int]) -> None:
    """Refuse a model without positions for the longest sample."""
    for limits, symbols in zip(_LIMITS[settings.family], longest):
        needed = symbols + (settings.family == MASKED_LM)  # a symbol at the beginning
        for flag, usual in limits.items():
            given = flags.get(flag, usual)
            if given and whole_number({flag: given}, flag, where) < needed:
                raise UsageError(
                    f"{where}: {flag} {given}: the longest sample of {settings.task} has "
                    f"{needed} symbols; give at least as many, or test shorter lengths"
                )


def _check_drawn(where: str, flags: Flags, settings: Settings) -> None:
    """Refuse fewer positions to draw from than a training sample has symbols."""
    drawn = flags.get("--random-positions")
    if drawn is None or flags.get("--position-sampler", "ordered") != "ordered":
        return
    trained = max(longest_of_some(settings, max(settings.lengths)))
    if whole_number(flags, "--random-positions", where) < trained:
        raise UsageError(
            f"{where}: --random-positions {drawn}: training samples of {settings.task} have up to "
            f"{trained} symbols; give at least as many, or train on shorter lengths"
        )


RECIPE = Recipe(steps, _SEARCHED, measures, check, ("generated",), prepare)
