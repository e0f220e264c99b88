"""Language models: train, score a text, and read contexts longer than in training."""

import csv
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.variants import MEMORY_TASK as WITH_MEMORY
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes.base import (
    LOSSES,
    RUN,
    Collect,
    Recipe,
    Step,
    averaging,
    checkpoint,
    fairseq,
    losses,
    measures_of_parts,
    need_files,
    parts_scored,
    split_task,
    training,
    validation,
    whole_number,
)
from fairseq_posenc.study.results import Measure

_MADE_BY = "examples/language_model/prepare.sh"
_USUAL = "valid"  # what is scored, unless the plan says
_SCORING = "evaluate"  # name of the step that scores the text
_CURVE = "extrapolation"  # name of the only curve


def steps(plan: Plan, flags: Flags, seed: int) -> List[Step]:
    """The steps of a run."""
    task, own = split_task(flags, "language_modeling")
    found = [training(plan, task, own, seed), *averaging(plan)]
    with_memory = task[1] == WITH_MEMORY  # fairseq-eval-lm carries none from batch to batch
    for subset, suffix in parts_scored(plan, _USUAL).items():
        name = _SCORING + suffix
        if with_memory:
            step = validation(plan, task, {"--batch-size": 8}, subset, name)
        else:
            step = _evaluation(plan, flags, subset, name)
        collect = partial(_scores, collect=step.collect, suffix=suffix)
        found.append(step._replace(collect=collect, stage=_SCORING))
    return [*found, _extrapolation(plan)] if plan.extrapolation and not with_memory else found


def _scores(folder: Path, collect: Collect, suffix: str) -> Dict[str, Any]:
    return {"scores": {f"{k}{suffix}": v for k, v in collect(folder)["scores"].items()}}


def _evaluation(plan: Plan, flags: Flags, subset: str, name: str) -> Step:
    words = [
        *fairseq("fairseq-eval-lm", plan),
        *("--path", f"{RUN}/{checkpoint(plan)}", "--gen-subset", subset),
        *("--tokens-per-sample", str(flags["--tokens-per-sample"]), "--num-workers", "0"),
        *words_of(merge({"--batch-size": 8}, plan.validate)),
    ]
    return Step(name, tuple(words), partial(losses, step=name), inputs=(checkpoint(plan),))


def _extrapolation(plan: Plan) -> Step:
    asked = plan.extrapolation
    words = [
        *("fairseq-posenc", "plot", "extrapolation", plan.data["folder"]),
        *(f"{_CURVE}={RUN}/{checkpoint(plan)}", "--subset", next(iter(parts_scored(plan, _USUAL)))),
        *("--lengths", ",".join(map(str, sorted(asked["lengths"])))),
        *("--output", f"{RUN}/extrapolation.png", "--csv", f"{RUN}/extrapolation.csv"),
    ]
    for key in ("last", "tokens"):
        if key in asked:
            words += [f"--{key}", str(asked[key])]
    return Step("extrapolation", tuple(words), read_curve, inputs=(checkpoint(plan),))


def read_curve(folder: Path) -> Dict[str, Any]:
    """Perplexity by length of the context, up to the length of the model's position table."""
    with open(folder / "extrapolation.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {"extrapolation": {row["length"]: float(row["perplexity"]) for row in rows}}


def measures(plan: Plan) -> Dict[str, Measure]:
    """Perplexity and loss, which are those of the validation set unless the plan says."""
    own = [one._replace(label=one.name) if plan.subset else one for one in LOSSES[::-1]]
    return measures_of_parts(plan, _USUAL, own)


def check(plan: Plan) -> None:
    """Check that the data exist, that the length of samples is given, and what a search reads."""
    for system, own in plan.systems.items():
        whole_number(merge(plan.base, own), "--tokens-per-sample", f"systems: {system}")
    first = next(iter(parts_scored(plan, _USUAL)))
    if plan.search and first != _USUAL:
        raise UsageError(
            f"subset: {first}: a search chooses by the loss on {_USUAL}; put {_USUAL} first"
        )
    if plan.extrapolation and "lengths" not in plan.extrapolation:
        raise UsageError("extrapolation: lengths: missing; give for example [128, 256, 512]")
    splits = ("train", "valid", *parts_scored(plan, _USUAL))
    names = ["dict.txt", *(f"{split}.idx" for split in splits)]
    need_files(plan, names, _MADE_BY)


RECIPE = Recipe(steps, _SCORING, measures, check, ("extrapolation", "subset"))
