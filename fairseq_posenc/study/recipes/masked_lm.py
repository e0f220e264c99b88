"""Masked language models: pre-train, validate, fine-tune on tasks of one or two sentences."""

import re
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.answers import read_answers
from fairseq_posenc.study.flags import Flags, merge, words_of
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes.base import (
    PLUG_IN,
    RUN,
    Absent,
    Recipe,
    Step,
    averaging,
    checkpoint,
    fairseq,
    flags_of_model,
    need_files,
    passes_of,
    split_task,
    training,
    usual_measures,
    validation,
    whole_number,
)
from fairseq_posenc.study.results import Measure
from fairseq_posenc.training.sentence_tasks.scores import percent
from fairseq_posenc.training.sentence_tasks.tasks import for_paper, read_table

_MADE_BY = "examples/bert_pretraining/prepare.sh"
_TASKS_MADE_BY = "examples/glue/prepare.sh"
_FINETUNE = {  # as in examples/glue/finetune.sh
    "--init-token": "0",
    "--separator-token": "2",
    "--shorten-method": "truncate",
    "--dropout": "0.1",
    "--attention-dropout": "0.1",
    "--optimizer": "adam",
    "--adam-betas": "(0.9, 0.999)",
    "--adam-eps": "1e-6",
    "--weight-decay": "0.01",
    "--clip-norm": "1.0",
    "--lr-scheduler": "polynomial_decay",
    "--required-batch-size-multiple": "1",
    "--num-workers": "0",
    "--log-interval": "100",
}
#: Scores whose names readers would not know.
LABELS = {
    "f1": "F1",
    "mcc": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
}
_WARMUP = 0.06  # part of the updates


class Task(NamedTuple):
    """A task to fine-tune on."""

    name: str  # name of the task
    folder: str  # the data, which prepare.sh made
    labels: Tuple[str, ...]  # the classes, or none for numbers
    scores: Tuple[str, ...]  # with the reported one first
    positive: str  # the label whose F1 counts
    flags: Flags  # epochs, batch and learning rate of the task's description
    examples: int  # number of training examples

    @property
    def key(self) -> str:
        """Its name in results: lower case, letters and digits."""
        return re.sub(r"\W", "", self.name.lower())


def tasks_of(plan: Plan) -> List[Task]:
    """The tasks of a plan whose folders are there, as these describe them.

    Raises:
        UsageError: a folder is incomplete.
    """
    names = plan.finetune.get("tasks", ())
    return [_task(plan.finetune, name) for name in names if _folder(plan, name).is_dir()]


def _folder(plan: Plan, task: str) -> Path:
    return Path(plan.finetune["data"], task)


def _task(finetune: Mapping[str, Any], name: str) -> Task:
    folder = Path(finetune.get("data", ""), name)
    try:
        about = read_table(str(folder / "task.yaml"))[name]
        examples = int((folder / "examples").read_text())
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(
            f"finetune: {name}: {folder} is not the folder of a task; make it with {_TASKS_MADE_BY}"
        ) from error
    paper = finetune.get("paper")
    if paper and paper not in about.papers:
        known = ", ".join(about.papers) or "no paper"
        raise UsageError(f"finetune: paper: {paper}: {name} has settings of {known}")
    about = for_paper(about, paper or "")
    flags = {"--max-epoch": about.epochs, "--batch-size": about.batch[0], "--lr": about.lr[0]}
    labels = about.labels if isinstance(about.labels, tuple) else ()
    return Task(name, str(folder), labels, about.scores, about.positive, flags, examples)


def steps(plan: Plan, flags: Flags, seed: int) -> List[Step]:
    """The steps of a run."""
    words, own = split_task(flags, "masked_lm")
    found = [
        training(plan, words, own, seed),
        *averaging(plan),
        validation(plan, words, {"--batch-size": 16}),
    ]
    for task in tasks_of(plan):
        found += _finetuning(plan, task, flags, seed)
    return found


def _finetuning(plan: Plan, task: Task, flags: Flags, seed: int) -> List[Step]:
    given = {**task.flags, **plan.finetune.get("flags", {}), **plan.finetune["tasks"][task.name]}
    rates = plan.finetune.get("lr") or [given["--lr"]]
    found: List[Step] = []
    places = []
    for rate in rates:
        name = f"{task.key}-lr{rate}"
        place = f"finetune/{name}"
        places.append(place)
        best = f"{place}/checkpoint_{plan.finetune.get('epoch', 'best')}.pt"
        words = _training_words(plan, task, {**given, "--lr": rate}, flags, seed, place)
        found.append(Step(name, words, inputs=(checkpoint(plan),), fresh=place, stage="finetune"))
        answers = (
            *("python", "-m", "fairseq_posenc.study.answers", f"{RUN}/{best}", task.folder),
            *("--output", f"{RUN}/{place}.tsv", "--user-dir", plan.user_dir or PLUG_IN),
        )
        found.append(
            Step(
                f"{name}-answers",
                answers,
                inputs=(best,),
                discards=f"{place}/*.pt",
                stage="finetune",
            )
        )
    score = partial(score_task, task=task, places=tuple(places))
    inputs = tuple(f"{place}.tsv" for place in places)
    return [*found, Step(f"{task.key}-score", collect=score, inputs=inputs)]


def _training_words(
    plan: Plan, task: Task, given: Flags, flags: Flags, seed: int, place: str
) -> Tuple[str, ...]:
    chosen = merge(_FINETUNE, given)
    where = f"finetune: {task.name}"
    batch = whole_number(chosen, "--batch-size", where) * passes_of(chosen, where)
    epochs = whole_number(chosen, "--max-epoch", where)
    updates = whole_number(chosen, "--max-update", where, -(-task.examples // batch) * epochs)
    schedule = {"--total-num-update": updates, "--warmup-updates": int(updates * _WARMUP)}
    target = ["--num-classes", str(len(task.labels) or 1)]
    target += [] if task.labels else ["--regression-target"]
    last = plan.finetune.get("epoch", "best") == "last"
    kept = "--no-save-optimizer-state" if last else "--no-last-checkpoints"
    return (
        *fairseq("fairseq-train", plan, "--task", "sentence_prediction", data=task.folder),
        *words_of(flags_of_model(flags)),
        *("--restore-file", f"{RUN}/{checkpoint(plan)}", "--save-dir", f"{RUN}/{place}"),
        *("--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"),
        *(*target, "--criterion", "sentence_prediction_metrics"),
        *("--metrics", ",".join(task.scores), "--positive-label", task.positive),
        *("--best-checkpoint-metric", task.scores[0], "--maximize-best-checkpoint-metric"),
        *words_of(merge(schedule, chosen)),
        *("--seed", str(seed), "--no-epoch-checkpoints", kept, "--log-format", "json"),
    )


def score_task(folder: Path, task: Task, places: Tuple[str, ...]) -> Dict[str, Any]:
    """The scores of a task at the learning rate whose first score is the best.

    Args:
        places: the fine-tunings, whose answers are ``PLACE.tsv``.
    """
    found = {place: _scores(read_answers(folder / f"{place}.tsv"), task) for place in places}
    best = max(places, key=lambda place: found[place][task.scores[0]])
    scores = {f"{task.key}_{name}": value for name, value in found[best].items()}
    target = f"{task.key}.answers.tsv"
    text = (folder / f"{best}.tsv").read_text(encoding="utf-8")
    (folder / target).write_text(text, encoding="utf-8")
    return {"scores": scores, "files": {"answers": {task.key: target}}}


def _scores(answers: List[Tuple[str, str]], task: Task) -> Dict[str, float]:
    names = sorted({label for pair in answers for label in pair})
    number = names.index if task.labels else float
    sides = np.array([[number(label) for label in pair] for pair in answers], dtype=float).T
    positive = names.index(task.positive) if task.positive in names else -1
    return {name: percent(name, sides[1], sides[0], positive) for name in task.scores}


def measures(plan: Plan) -> Dict[str, Measure]:
    """The scores of the tasks, and the losses."""
    found = []
    for task in tasks_of(plan):
        for name in task.scores:
            label = f"{task.name}, {LABELS.get(name, name)}"
            found.append(Measure(f"{task.key}_{name}", "higher", label, "%"))
    if plan.base.get("--criterion") == "masked_lm_accuracy":
        found.append(Measure("accuracy", "higher", "masked tokens predicted right", "%"))
    return usual_measures(*found)


def check(plan: Plan) -> None:
    """Check that the data, and those of the tasks, exist and have the same dictionary."""
    need_files(plan, ["dict.txt", "train.idx", "valid.idx"], _MADE_BY)
    for name in plan.finetune.get("tasks", ()):
        if not _folder(plan, name).is_dir():
            raise Absent(
                f"finetune: {name}: {_folder(plan, name)}: no such folder; make it with "
                f"{_TASKS_MADE_BY}"
            )
    known = lines_of(Path(plan.data["folder"], "dict.txt"))
    for task in tasks_of(plan):
        if lines_of(Path(task.folder, "input0", "dict.txt")) != known:
            raise UsageError(
                f"finetune: {task.name}: {task.folder} has another dictionary than "
                f"{plan.data['folder']}; make it from that with {_TASKS_MADE_BY}"
            )


RECIPE = Recipe(steps, "validate", measures, check, ("finetune",))
