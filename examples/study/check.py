"""Check a plan before its first training, with fairseq's own parsers.

python check.py plan.yaml [--gpus N]
"""

import argparse
import contextlib
import io
import json
import logging
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Set

import plan as plans
import study as studies
import trainings
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.utils import import_user_module
from plan import need
from trainings import Training

import fairseq_posenc

GENERATED_TASKS = Path(__file__).resolve().parents[1] / "generated_tasks"
_NO_SETTINGS = ("arch", "_name", "save_dir", "user_dir")  # names and folders do not affect results


def parse(where: str, get_parser: Callable[[], Any], words: Sequence[str]) -> Any:
    """Parse a command line of fairseq into settings.

    Raises:
        Wrong: fairseq refuses the command line; the message begins with *where*.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return options.parse_args_and_arch(get_parser(), list(words))
    except SystemExit as error:
        lines = [line for line in said.getvalue().splitlines() if line.strip()] or [str(error)]
        raise plans.Wrong(f"{where}: {lines[-1].partition('error: ')[2] or lines[-1]}") from None
    except Exception as error:  # whatever the plug-in or fairseq raises for a value
        raise plans.Wrong(f"{where}: {' '.join(str(error).split())}") from None


def check(plan: Dict[str, Any], gpus: int) -> None:
    """Check data and flags; refuse equal systems, and searches without a loss on ``valid``.

    Raises:
        Wrong: the message names the system, the flag, and what would work.
    """
    folder = str(GENERATED_TASKS) if plan["recipe"] == "generated" else ""
    import_user_module(argparse.Namespace(user_dir=plan["user_dir"] or folder or None))
    known = studies.measures(plan)
    for name in plan["measures"]:
        need(name in known, f"measures: {name}: unknown; known: {', '.join(known)}")
    seen: Dict[str, str] = {}
    scored: Set[str] = set()
    for one in trainings.trainings(plan):
        where = f"systems: {one.system}"
        for path in trainings.starts(plan, one):
            need(Path(path).is_file(), f"{where}: {path}: no such file to start from")
        if one.seed != plan["seeds"][0] or one.task != trainings.tasks_of(plan)[0]:
            continue  # all seeds and all generated tasks have the same flags
        folder = trainings.folder_of(plan, one.system, one.task)
        _check_data(plan, folder, one)
        flags = trainings.merge(plan["base"], trainings.flags_of(plan, one))
        half = [flag for flag in ("--fp16", "--memory-efficient-fp16") if flags.get(flag)]
        need(gpus or not half, f"{where}: {''.join(half[:1])}: needs a GPU; give --config gpus=1")
        task = trainings.task_words(plan, one)
        words = [
            *task,
            *trainings.training_words(plan, one),
            *trainings.device_words(plan, one, gpus),
        ]
        args = parse(where, options.get_training_parser, [folder, *words])
        model = ARCH_MODEL_REGISTRY[args.arch].__name__
        settings = {k: v for k, v in vars(args).items() if k not in _NO_SETTINGS}
        same = seen.setdefault(repr((model, sorted(settings.items(), key=str))), one.system)
        need(same == one.system, f"{where}: is the same model as {same}, with the same settings")
        if one.system not in scored:  # scoring is the same for all values of the search
            _check_average(plan, flags, where)
            _check_scoring(plan, one, [folder, *task])
        scored.add(one.system)


def _check_data(plan: Dict[str, Any], folder: str, one: Training) -> None:
    if one.task:
        return  # the study makes the data
    need(Path(folder).is_dir(), f"data: {folder}: no such folder")
    names = ["dict.txt", "train.idx", "valid.idx"]
    if plan["recipe"] in ("translation", "documents"):
        source, target = trainings.pair(plan, folder)
        parts = ("train", "valid", *map(studies.name_of, studies.parts(plan)))
        names = [
            f"{part}.{source}-{target}.{lang}.idx" for part in parts for lang in (source, target)
        ]
    if plan["recipe"] == "language_model":
        names += [f"{part}.idx" for part in map(studies.name_of, studies.parts(plan))]
        first = next(iter(studies.parts(plan)))
        fits = first == "valid" or not plan["search"]
        need(fits, f"subset: {first}: a search chooses by the loss on valid; put valid first")
    for name in names:
        need(Path(folder, name).is_file(), f"data: {folder}: has no {name}")
    for key in ("references", "sources", "choices", "documents"):
        path = plan["data"].get(key, folder)
        need(Path(path).exists(), f"data: {key}: {path}: no such file")
    for name in plan["finetune"].get("tasks", ()):
        words = [
            Path(f, "dict.txt").read_text(encoding="utf-8")
            for f in (folder, f"{plan['finetune']['data']}/{name}/data-bin/input0")
        ]
        need(words[0] == words[1], f"finetune: {name}: its dict.txt is not the one in {folder}")


def _check_average(plan: Dict[str, Any], flags: Dict[str, Any], where: str) -> None:
    for kind, count in plan["average"].items():
        lora = count > 1 and flags.get("--lora-base")
        need(not lora, f"average: {where}: low-rank matrices cannot be averaged; drop average")
        every = 1
        if kind == "updates" and count > 1:
            every = trainings.whole(flags, "--save-interval-updates", f"average: {kind}: {where}")
        ends = [int(plan["budget"].get(kind, count * every))]
        for part in plan["subset"]:
            update = int(part.partition("@")[2] or ends[0])
            fits = update % every == 0 and update <= int(plan["budget"].get(kind, update))
            need(
                fits or "@" not in part, f"subset: {part}: checkpoints are at every {every} updates"
            )
            ends.append(update)
        made = min(ends) // every
        need(made >= count, f"average: {kind}: {count}: there will be {made} checkpoints")


def _check_scoring(plan: Dict[str, Any], one: Training, words: List[str]) -> None:
    where, folder = f"systems: {one.system}", words[0]
    validate, decode = trainings.words(plan["validate"]), trainings.words(plan["decode"])
    if plan["recipe"] == "language_model" and "language_modeling" in words:
        flags = trainings.merge(plan["base"], trainings.flags_of(plan, one))
        length = trainings.whole(flags, "--tokens-per-sample", where)
        given = [folder, "--path", "x", "--tokens-per-sample", str(length), *validate]
        parse("validate", options.get_eval_lm_parser, given)
    else:
        parse("validate", options.get_validation_parser, [*words, "--path", "x", *validate])
    if plan["recipe"] == "translation":
        parse("decode", options.get_generation_parser, [*words, "--path", "x", *decode])
    for name in plan["finetune"].get("tasks", ()):
        task = trainings.finetuned(plan, name)
        for rate in trainings.rates(plan, task):
            given = trainings.finetuning_words(plan, task, rate, one.seed)
            start = [task.folder, "--task", "sentence_prediction", "--save-dir", "x"]
            args = parse(f"finetune: {name}", options.get_training_parser, [*start, *given])
            models = [ARCH_MODEL_REGISTRY[a] for a in (args.arch, plan["base"].get("--arch"))]
            text = f"finetune: --arch {args.arch}: selects another model than --arch in base"
            need(models[0] == models[1], f"{text}; give --arch and its shape in finetune: flags")


def main(argv: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plan")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--base", default="{}", help="flags that change the base, as JSON")
    args = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    fairseq_posenc.register()
    try:
        plan = plans.load(args.plan, json.loads(args.base))
        check(plan, args.gpus)
    except plans.Wrong as error:
        sys.exit(f"check.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
