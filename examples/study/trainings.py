"""The trainings and fine-tunings of a plan: their flags, and the digests that name their folders.

The Snakefile and the scripts beside it import this; neither PyTorch nor fairseq is imported.
"""

import functools
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from plan import Flags, Wrong, generated, need

# --- flags


def merge(*parts: Flags) -> Flags:
    """Merge flags; later parts override earlier parts, and False drops a flag."""
    together = {flag: value for part in parts for flag, value in part.items() if flag != "data"}
    return {flag: value for flag, value in together.items() if value is not False}


def words(flags: Flags) -> List[str]:
    """Flags as the words of a command line."""
    return [w for f, v in flags.items() for w in ([f] if v is True else [f, str(v)])]


def whole(flags: Flags, flag: str, where: str, usual: int = 0) -> int:
    """The value of a flag, which has to be a whole number above 0; of a list, the first entry."""
    first = str(flags.get(flag, usual or "nothing")).strip("[]() ").split(",")[0].strip()
    fits = first.isdecimal() and int(first)
    need(fits, f"{where}: {flag} {first}: expected a whole number above 0")
    return int(first)


# --- the trainings


class Training(NamedTuple):
    """A system, a seed, a value of the search, and a generated task or an empty name."""

    system: str
    seed: int
    value: str = ""
    task: str = ""


def flags_of(plan: Dict[str, Any], one: Training) -> Flags:
    """The flags of a system beyond the base, with the training's value of the search."""
    own = plan["systems"][one.system]
    return {**own, **{flag: one.value for flag in plan["search"] if one.value}}


def folder_of(plan: Dict[str, Any], system: str, task: str = "") -> str:
    """The data folder of a system or, for a generated task, the folder that the study makes."""
    folder = str(plan["systems"][system].get("data", plan["data"]["folder"]))
    made = [generated(plan, task), digest(plan["user_dir"], "*.py")] if task else []
    return f"{folder}/{task}-{key_of(*made)}" if task else folder


def pair(plan: Dict[str, Any], folder: str) -> Tuple[str, str]:
    """The source and target languages, from the plan or else from the names of the data files."""
    named = (re.match(r"train\.(\w+)-(\w+)\.\w+\.idx", p.name) for p in _files(folder, "train.*"))
    source, target = next((m.groups() for m in named if m), ("SOURCE", "TARGET"))
    return plan["data"].get("source_lang", source), plan["data"].get("target_lang", target)


def task_words(plan: Dict[str, Any], one: Training) -> List[str]:
    """The words of a command line that select and configure fairseq's task."""
    recipe = plan["recipe"]
    if recipe == "generated":
        family = generated(plan, one.task)["family"]
        sides = ["--source-lang", "input", "--target-lang", "output"]
        eos = ["--sample-break-mode", "eos"]
        return ["--task", family, *(sides if family == "translation" else eos)]
    if recipe in ("translation", "documents"):
        source, target = pair(plan, folder_of(plan, one.system))
        return ["--task", "translation", "--source-lang", source, "--target-lang", target]
    usual = {"masked_lm": "masked_lm", "language_model": "language_modeling"}[recipe]
    return ["--task", str(merge(plan["base"], flags_of(plan, one)).get("--task", usual))]


def training_words(plan: Dict[str, Any], one: Training) -> List[str]:
    """The words of fairseq-train between ``--save-dir`` and ``--log-format``."""
    usual = {"--log-interval": "100", "--num-workers": "0", "--required-batch-size-multiple": "1"}
    if plan["recipe"] == "generated":
        usual["--criterion"] = "answer_cross_entropy"
    flags = merge(usual, plan["base"], flags_of(plan, one))
    if plan["recipe"] in ("masked_lm", "language_model"):
        flags.pop("--task", None)
    flags = {
        f: str(v).replace("{seed}", str(one.seed)) if f in STARTS else v for f, v in flags.items()
    }
    return [*words(flags), "--seed", str(one.seed), *_budget(plan, flags), *_saving(plan)]


STARTS = ("--finetune-from-model", "--lora-base")  # flags that name a checkpoint to start from


def starts(plan: Dict[str, Any], one: Training) -> List[str]:
    """The checkpoints from which a training starts."""
    given = training_words(plan, one)
    return [given[at + 1] for at, word in enumerate(given) if word in STARTS]


def passes(plan: Dict[str, Any], one: Training) -> int:
    """``--update-freq``, for the number of GPUs for which the plan is made."""
    return whole(merge(plan["base"], flags_of(plan, one)), "--update-freq", one.system, 1)


def _budget(plan: Dict[str, Any], flags: Flags) -> List[str]:
    ((kind, amount),) = plan["budget"].items()
    if kind == "tokens":
        needed = ("--batch-size", "--tokens-per-sample")
        sizes = [whole(flags, flag, "budget: tokens: base") for flag in needed]
        sizes += [whole(flags, "--update-freq", "base", 1), plan["gpus"]]
        kind, amount = "updates", math.ceil(amount / functools.reduce(int.__mul__, sizes))
    flag = {"updates": "--max-update", "epochs": "--max-epoch", "hours": "--stop-time-hours"}
    return [flag[kind], str(amount)]


def _saving(plan: Dict[str, Any]) -> List[str]:
    if "epochs" in plan["average"]:
        return ["--keep-last-epochs", str(plan["average"]["epochs"])]
    # checkpoints to be averaged for test@1200 are kept until the run has its result
    earlier = any("@" in part for part in plan["subset"])
    kept = -1 if earlier else plan["average"].get("updates", 1)
    return ["--no-epoch-checkpoints", "--keep-interval-updates", str(kept)]


def tasks_of(plan: Dict[str, Any]) -> List[str]:
    """The generated tasks of a plan; one with an empty name for other recipes."""
    return list(plan["generated"].get("tasks", [""]))


def values_of(plan: Dict[str, Any]) -> List[str]:
    """The values that the search may try, its edges first and last; without a search, [""]."""
    (values,) = plan["search"].values() or [[""]]
    return [*plan["search_edges"][:1], *values, *plan["search_edges"][1:]]


def trainings(plan: Dict[str, Any]) -> List[Training]:
    """All trainings that a plan could need: every value of the search with every seed."""
    return [
        Training(system, seed, value, task)
        for seed in dict.fromkeys([*plan["seeds"], *plan["search_seeds"]])
        for system in plan["systems"]
        for value in values_of(plan)
        for task in tasks_of(plan)
    ]


# --- digests


def key_of(*content: Any) -> str:
    """Eight hexadecimal digits of a hash of everything that determines a result."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


@functools.lru_cache(maxsize=None)
def digest(place: str, *names: str) -> str:
    """A digest of a file, or of a folder's files with matching names; empty if there are none.

    It depends on names, sizes, and 4 MiB at either end, but not on times or the folder's path.
    """
    found = hashlib.sha256()
    files = list(_files(place, *names)) if place else []
    for file in files:
        size = file.stat().st_size
        with open(file, "rb") as stream:
            ends = stream.read(1 << 22)
            if size > 1 << 22:
                stream.seek(max(1 << 22, size - (1 << 22)))
                ends += stream.read()
        found.update(json.dumps([file.name, size, hashlib.sha256(ends).hexdigest()]).encode())
    return found.hexdigest() if files else ""


def _files(place: str, *names: str) -> List[Path]:
    path = Path(place)
    matching = {file for name in names or ("*",) for file in path.rglob(name)}
    return sorted(file for file in matching or {path} if file.is_file())


def key_of_training(plan: Dict[str, Any], one: Training) -> str:
    """A hash of what determines a training: flags, data, starting checkpoints and own code."""
    folder = folder_of(plan, one.system, one.task)
    # settings determine a generated task's data, and their hash is in the folder's name
    data = Path(folder).name if one.task else digest(folder, "dict*", "train*", "valid*")
    files = [data, digest(plan["user_dir"], "*.py"), *map(digest, starts(plan, one))]
    return key_of(task_words(plan, one), sorted(training_words(plan, one)), plan["gpus"], files)


def name_of(plan: Dict[str, Any], one: Training) -> str:
    """The name of a training's folder."""
    task = f"-{one.task}" if one.task else ""
    return f"{one.system}{task}-seed{one.seed}-{key_of_training(plan, one)}"


def device_words(plan: Dict[str, Any], one: Training, gpus: int) -> List[str]:
    """The flags that keep the plan's batch size on *gpus* GPUs, or on the CPU if *gpus* is 0."""
    share, processes = plan["gpus"], max(1, gpus)
    more = ["--update-freq", str(passes(plan, one) * share // processes)]
    here = ["--distributed-world-size", str(processes), *([] if gpus else ["--cpu"])]
    return [*(more if share > processes else []), *here]


# --- fine-tuning

USUAL_FINETUNING: Flags = {  # as in examples/glue
    "--arch": "posenc_masked_lm",
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


class Task(NamedTuple):
    """A task to fine-tune on, with the settings of its folder and the changes of the plan."""

    name: str
    folder: str
    flags: Flags
    examples: int  # training examples

    @property
    def key(self) -> str:
        """The task's name in results: lower-case letters and digits."""
        return re.sub(r"\W", "", self.name.lower())

    @property
    def scores(self) -> List[str]:
        """The scores, with the reported one first."""
        return str(self.flags["--metrics"]).split(",")

    @property
    def positive(self) -> str:
        """The label for which F1 is computed."""
        return str(self.flags.get("--positive-label", "1"))


def finetuned(plan: Dict[str, Any], name: str) -> Task:
    """The fine-tuning task *name* of a plan.

    Raises:
        Wrong: the task's folder has no data of examples/glue.
    """
    asked = plan["finetune"]
    folder = Path(asked["data"], name, "data-bin")
    try:
        settings = (folder / "task").read_text(encoding="utf-8").split()
        examples = (folder / "label" / "train.label").read_text(encoding="utf-8").count("\n")
    except OSError as error:
        text = f"finetune: {name}: {folder} is not the data of a task ({error!r}); make it with"
        raise Wrong(f"{text} examples/glue/prepare.sh") from None
    flags: Flags = dict(zip(("--max-epoch", "--batch-size", "--lr"), settings))
    flags.update(flags_in(settings[4:]))
    changed = (asked.get("flags", {}), asked["tasks"][name])
    return Task(name, str(folder), merge(USUAL_FINETUNING, flags, *changed), examples)


def flags_in(words: List[str]) -> Flags:
    """Parse the words of a command line into flags; flags without a value become True."""
    found: Flags = {}
    for word, following in zip(words, [*words[1:], "--"]):
        if word.startswith("--"):
            found[word] = True if following.startswith("--") else following
    return found


def rates(plan: Dict[str, Any], task: Task) -> List[str]:
    """The learning rates to try; the scores of the best one count."""
    return list(plan["finetune"].get("lr") or [str(task.flags["--lr"])])


def finetuning_words(plan: Dict[str, Any], task: Task, rate: str, seed: int) -> List[str]:
    """The words of fairseq-train after ``--save-dir``, for a fine-tuning."""
    best = {"--best-checkpoint-metric": task.scores[0], "--lr": rate}
    chosen = merge(task.flags, best)
    where = f"finetune: {task.name}"
    batch = whole(chosen, "--batch-size", where) * whole(chosen, "--update-freq", where, 1)
    epochs = whole(chosen, "--max-epoch", where)
    updates = whole(chosen, "--max-update", where, -(-task.examples // batch) * epochs)
    usual = {"--total-num-update": updates, "--warmup-updates": int(updates * 0.06)}
    last = plan["finetune"].get("epoch", "best") == "last"
    return [
        *("--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"),
        *("--criterion", "sentence_prediction_metrics", "--maximize-best-checkpoint-metric"),
        *(*words(merge(usual, chosen)), "--seed", str(seed)),
        *(
            "--no-epoch-checkpoints",
            "--no-save-optimizer-state" if last else "--no-last-checkpoints",
        ),
    ]
