"""What the logs and outputs of a run's commands say, as JSON: parts of its ``result.json``.

    python collect.py train train.log >train.json

Each subcommand prints what it read; ``result`` puts the parts together.
"""

import argparse
import csv
import json
import math
import platform
import re
import shutil
import subprocess
import sys
from importlib import import_module, metadata
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, Sequence, Tuple

_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+) \(num\. trained: ([\d,]+)\)")
_MEMORY = re.compile(r"total memory = ([\d.]+) GB")
_SCORE = re.compile(r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)")
_COMMAND = re.compile(r"\+ ((?:fairseq|python)\S* .*)")
_SECONDS = re.compile(r"seconds (\d+)")
_DIVERGED = re.compile(r"FloatingPointError: .*")
ENOUGH = 90.0  # percentage of right outputs up to which a model is not said to break

Part = Dict[str, Any]


def lines_of(path: str) -> List[str]:
    """The lines of a text, split at line feeds only, which ``str.splitlines`` is not."""
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    return lines if lines[-1] else lines[:-1]


def fields_of(line: str) -> Dict[str, Any]:
    """The fields of a line of a log in JSON; none if it has none."""
    start = line.find("{")
    try:
        found = json.loads(line[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def stage(log: str, name: str) -> Part:
    """The commands in a log, and their seconds as those of the stage *name*."""
    lines = lines_of(log)
    plug_in = _output("fairseq-posenc", "path")
    commands = [match.group(1) for match in map(_COMMAND.fullmatch, lines) if match]
    shown = list(dict.fromkeys(commands))
    for path in plug_in:
        shown = [one.replace(path, '"$(fairseq-posenc path)"') for one in shown]
    seconds = [int(match.group(1)) for match in map(_SECONDS.fullmatch, lines) if match]
    return {"commands": shown, **({"seconds": {name: sum(seconds)}} if seconds else {})}


def train(log: str) -> Part:
    """Size, length, time, memory and learning curve, from the whole log of a training.

    What was logged twice, because the training was interrupted in between, counts once.
    """
    lines = lines_of(log)
    epochs: Dict[int, Dict[str, Any]] = {}
    points: Dict[int, Dict[str, float]] = {}
    free: List[float] = []
    for fields in map(fields_of, lines):
        if "train_num_updates" in fields:
            epochs[int(fields["epoch"])] = fields
        for name, key, updates in (
            ("train_loss", "loss", "num_updates"),
            ("valid_loss", "valid_loss", "valid_num_updates"),
        ):
            if updates in fields and key in fields:
                points.setdefault(int(float(fields[updates])), {})[name] = float(fields[key])
        free += [float(fields[key]) for key in ("gb_free", "train_gb_free") if key in fields]
    tokens, before = 0.0, 0
    for epoch in sorted(epochs):
        updates = int(float(epochs[epoch]["train_num_updates"]))
        tokens += (updates - before) * float(epochs[epoch].get("train_wpb", 0))
        before = updates
    sizes = [match.groups() for match in map(_PARAMETERS.search, lines) if match]
    total = next((float(m.group(1)) for m in map(_MEMORY.search, lines) if m), None)
    curve = [{"update": update, **points[update]} for update in sorted(points)]
    losses = [point["valid_loss"] for point in curve if "valid_loss" in point]
    diverged = [match.group(0) for match in map(_DIVERGED.match, lines) if match]
    over = any("done training in" in line for line in lines)
    return {
        **dict(zip(("parameters", "trained"), (int(n.replace(",", "")) for n in sizes[-1]))),
        "updates": before,
        "tokens": round(tokens),
        "curve": curve,
        "scores": {"loss": losses[-1]} if losses else {},
        **({"peak_memory_mb": round((total - min(free)) * 1024)} if total and free else {}),
        **({} if over else {"error": "\n".join([*lines[-15:], *diverged[-1:]])}),
        **stage(log, "train"),
        "seconds": {
            "train": round(sum(float(e.get("train_train_wall", 0)) for e in epochs.values()))
        },
        "environment": environment(),
    }


def environment() -> Dict[str, str]:
    """Versions, and the name of the device."""
    found = {name: _version(name) for name in ("fairseq", "fairseq-fixed") if _version(name)}
    device = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if not device and Path("/proc/cpuinfo").exists():
        device = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "fairseq": next((f"{name} {version}" for name, version in found.items()), ""),
        "fairseq_posenc": _version("fairseq_posenc"),
        "device": next(iter(device), platform.processor() or platform.machine()),
    }


def _output(*words: str) -> List[str]:
    try:
        return subprocess.check_output(words, text=True, timeout=60).splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def losses(log: str, subset: str, suffix: str) -> Part:
    """Loss in bits and perplexity, from the log of fairseq-validate or fairseq-eval-lm."""
    found: Dict[str, float] = {}
    for line in lines_of(log):
        score, fields = _SCORE.search(line), fields_of(line)
        if score:
            found = {"loss": float(score.group(1)), "perplexity": float(score.group(2))}
        elif f"{subset}_loss" in fields:
            found = {"loss": float(fields[f"{subset}_loss"])}
            bits = float(fields.get(f"{subset}_nll_loss", found["loss"]))
            found["perplexity"] = round(2.0**bits, 3)
            if f"{subset}_accuracy" in fields:
                found["accuracy"] = float(fields[f"{subset}_accuracy"])
    if not found:
        sys.exit(f"{log}: has no loss")
    return {"scores": {name + suffix: value for name, value in found.items()}}


def bleu(generated: str, references: str, sources: str, target: str, suffix: str) -> Part:
    """Write translations, references and sources beside each other, and score them with sacreBLEU.

    Args:
        generated: the output of fairseq-generate.
    """
    metrics = import_module("sacrebleu.metrics")
    best: Dict[int, str] = {}
    for line in lines_of(generated):
        match = re.match(r"D-(\d+)\t\S+\t?(.*)", line)
        if match:
            best.setdefault(int(match.group(1)), " ".join(match.group(2).split()))
    written = {
        "hypotheses": [best[number] for number in sorted(best)],
        "references": lines_of(references),
    }
    if sorted(best) != list(range(len(written["references"]))):
        said = f"{references}: {len(written['references'])} lines, and {len(best)} translations"
        sys.exit(f"{said}; give the raw text of the same subset")
    if Path(sources).exists() and len(lines_of(sources)) == len(best):
        written["sources"] = lines_of(sources)
    files = {}
    for name, lines in written.items():
        files[name + suffix] = str(Path(generated).with_name(f"{name}{suffix}.txt"))
        text = "".join(line + "\n" for line in lines)
        Path(files[name + suffix]).write_text(text, encoding="utf-8")
    asian = target in ("zh", "ja")
    scorers = {
        "bleu": metrics.BLEU(trg_lang=target),
        "chrf": metrics.CHRF(),
        "ter": metrics.TER(normalized=asian, asian_support=asian),
    }
    scores = {
        name + suffix: round(
            one.corpus_score(written["hypotheses"], [written["references"]]).score, 4
        )
        for name, one in scorers.items()
    }
    signatures = {name + suffix: str(one.get_signature()) for name, one in scorers.items()}
    return {"scores": scores, "signatures": signatures, "files": files}


def extrapolation(table: str) -> Part:
    """Perplexity by length of the context, from the table of ``plot extrapolation``."""
    with open(table, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {"extrapolation": {row["length"]: float(row["perplexity"]) for row in rows}}


def answers(tables: Sequence[str], key: str, names: Sequence[str], positive: str) -> Part:
    """The scores of a task at the learning rate whose first score is the best.

    Args:
        tables: labels and predictions, one for each rate.
        names: the scores.
        positive: the label whose F1 counts.
    """
    found = {table: _of_answers(table, names, positive) for table in tables}
    best = max(tables, key=lambda table: found[table][names[0]])
    scores = {f"{key}_{name}": value for name, value in found[best].items()}
    return {"scores": scores, "files": {"answers": {key: best}}}


def _of_answers(table: str, names: Sequence[str], positive: str) -> Dict[str, float]:
    sklearn, scipy = import_module("sklearn.metrics"), import_module("scipy.stats")
    pairs = [line.split("\t") for line in lines_of(table)]
    right, given = zip(*pairs)
    if names[0] in ("pearson", "spearman"):
        right, given = (tuple(map(float, side)) for side in (right, given))
    compute = {
        "accuracy": lambda: sklearn.accuracy_score(right, given),
        "f1": lambda: sklearn.f1_score(
            [one == positive for one in right], [one == positive for one in given], zero_division=0
        ),
        "mcc": lambda: sklearn.matthews_corrcoef(right, given),
        "pearson": lambda: scipy.pearsonr(right, given)[0],
        "spearman": lambda: scipy.spearmanr(right, given)[0],
    }
    constant = 1 in (len(set(right)), len(set(given)))  # which has no correlation
    zero = [name for name in ("mcc", "pearson", "spearman") if constant]
    return {name: 0.0 if name in zero else round(100 * compute[name](), 2) for name in names}


def lengths(log: str, task: str, trained: int) -> Part:
    """The percentage of right outputs of a generated task by length, and what that tells.

    Args:
        trained: the longest length of the training.
    """
    found: Dict[int, float] = {}
    for fields in map(fields_of, lines_of(log)):
        for key, value in fields.items():
            match = re.fullmatch(r"length(\d+)_exact_match", key)
            if match:
                found[int(match.group(1))] = float(value)
    longest = 0
    for length in sorted(found):
        if found[length] < ENOUGH:
            break
        longest = length
    told = {
        "within": mean(value for length, value in found.items() if length <= trained),
        "beyond": mean(value for length, value in found.items() if length > trained),
        "breaking": longest / trained,
    }
    scores = {f"{task}_{name}": value for name, value in told.items()}
    by_length = {str(length): found[length] for length in sorted(found)}
    return {"scores": scores, "lengths": {task: by_length}}


def documents(choices: Sequence[str], hypotheses: str, references: str, target: str) -> Part:
    """Accuracies of contrastive choices, and BLEU by sentence and by document.

    Args:
        choices: the files of contrastive.py, each ``SUFFIX=FILE``.
        hypotheses: translations, with a blank line after each document, as in *references*.
    """
    scores: Dict[str, float] = {}
    for entry in choices:
        suffix, _, path = entry.partition("=")
        groups = json.loads(Path(path).read_text(encoding="utf-8"))["accuracies"]
        near = [groups[name] for name in groups if re.fullmatch("distance [123]", name)]
        found = {"accuracy": groups["all"]["accuracy"]}
        for name, one in groups.items():
            if ":" not in name and not name.startswith("distance") and name != "all":
                found[f"accuracy_{name}"] = one["accuracy"]
        if near:
            right = sum(one["accuracy"] * one["choices"] for one in near)
            found["near"] = right / sum(one["choices"] for one in near)
        if "distance >3" in groups:
            found["far"] = groups["distance >3"]["accuracy"]
        scores.update({name + suffix: round(value, 4) for name, value in found.items()})
    metric = import_module("sacrebleu.metrics").BLEU(trg_lang=target)
    lines = lines_of(hypotheses), lines_of(references)
    if len(lines[0]) != len(lines[1]):
        sys.exit(f"{references}: has other documents than {hypotheses}")
    blocks = groupby(zip(*lines), key=lambda pair: bool(pair[1].strip()))
    pairs = [list(zip(*block)) for has_text, block in blocks if has_text]
    sentences = [[line for pair in pairs for line in pair[side]] for side in (0, 1)]
    whole = [[" ".join(pair[side]) for pair in pairs] for side in (0, 1)]
    for name, (ours, theirs) in (("bleu", sentences), ("d_bleu", whole)):
        scores[name] = round(metric.corpus_score(ours, [theirs]).score, 4)
    return {"scores": scores, "signatures": {"bleu": str(metric.get_signature())}}


def choose(trials: Sequence[str]) -> Part:
    """The value of a search with the lowest mean of the validation losses.

    Args:
        trials: for each value and seed ``FLAG VALUE=FILE,FILE``, whose losses are averaged.

    Returns:
        the ``value``, and the losses ``tried``, one for each seed, of every value with which no
        training diverged.
    """
    found: Dict[str, List[float]] = {}
    for trial in trials:
        name, _, files = trial.rpartition("=")
        losses = [_read(path).get("scores", {}).get("loss", math.inf) for path in files.split(",")]
        found.setdefault(name, []).append(mean(losses))
    finite = {name: each for name, each in found.items() if all(map(math.isfinite, each))}
    best = min(finite or found, key=lambda name: mean(found[name]))
    return {"value": best.partition(" ")[2], "tried": finite}


def _read(path: str) -> Part:
    found: Part = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def together(trainings: Dict[str, Part], controls: Sequence[str]) -> Part:
    """What is told of the trainings of all generated tasks of a run together."""
    chosen = [task for task in trainings if task not in controls] or list(trainings)
    points = [{one["update"]: one for one in trainings[task]["curve"]} for task in chosen]
    curve = []
    for update in sorted(set(points[0]).intersection(*points[1:])):
        of_all = [one[update] for one in points]
        names = set(of_all[0]).intersection(*of_all[1:])
        curve.append({name: mean(float(one[name]) for one in of_all) for name in sorted(names)})
    every, first = list(trainings.values()), next(iter(trainings.values()))
    losses = {
        f"{task}_loss": one["scores"].get("loss", math.nan) for task, one in trainings.items()
    }
    memory = [one["peak_memory_mb"] for one in every if "peak_memory_mb" in one]
    return {
        **first,
        "tokens": sum(one["tokens"] for one in every),
        "seconds": {"train": sum(one["seconds"]["train"] for one in every)},
        "commands": [command for one in every for command in one["commands"]],
        "curve": curve,
        **({"peak_memory_mb": max(memory)} if memory else {}),
        "scores": {"loss": round(mean(losses[f"{task}_loss"] for task in chosen), 4), **losses},
    }


def result(
    folder: str,
    about: Part,
    trainings: Dict[str, Part],
    rest: Sequence[Part],
    controls: Sequence[str],
) -> Part:
    """The result of a run; the texts that it names are copied to its *folder*.

    Args:
        about: what the plan says of the run.
        trainings: what is told of the training of each generated task, or of the only one.
        rest: the other parts.
        controls: generated tasks that means leave out.
    """
    found: Part = {"status": "done", "error": "", "commands": [], **about}
    whole = next(iter(trainings.values())) if "" in trainings else together(trainings, controls)
    failed = [one["error"] for one in trainings.values() if "error" in one]
    if "" in trainings:  # the loss of the checkpoint that is scored is that of its validation
        whole = {**whole, "scores": {}}
    for part in (whole, *rest):
        _add(found, part)
    if failed:
        return {**found, "status": "failed", "error": failed[0]}
    if "" not in trainings:
        tasks = [task for task in trainings if task not in controls] or list(trainings)
        for name in ("breaking", "beyond", "within"):
            found["scores"][name] = mean(found["scores"][f"{task}_{name}"] for task in tasks)
        found["scores"] = {name: round(value, 4) for name, value in found["scores"].items()}
    found["files"] = {name: _copied(one, folder) for name, one in found.get("files", {}).items()}
    return found


def _copied(place: Any, folder: str) -> Any:
    if isinstance(place, dict):
        copied = {}
        for key, one in place.items():
            copied[key] = f"{key}.answers.tsv"
            shutil.copyfile(one, str(Path(folder, copied[key])))
        return copied
    shutil.copyfile(place, str(Path(folder, Path(place).name)))
    return Path(place).name


def _add(found: Part, more: Part) -> None:
    """Add entries to nested dictionaries; lists grow, and seconds add up."""
    for key, value in more.items():
        if isinstance(value, dict):
            _add(found.setdefault(key, {}), value)
        elif key == "commands":
            found[key] = [*found.get(key, []), *value]
        elif isinstance(value, int) and key in found:
            found[key] += value
        else:
            found[key] = value


def _parse(argv: Sequence[str]) -> Tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "what",
        choices=[
            "stage",
            "train",
            "losses",
            "bleu",
            "extrapolation",
            "answers",
            "lengths",
            "documents",
            "choose",
            "result",
        ],
    )
    parser.add_argument("files", nargs="*", help="what is read")
    parser.add_argument("--log", help="the log with the command and its time")
    parser.add_argument("--stage", default="", help="what the command's time counts for")
    for flag in ("suffix", "subset", "references", "sources", "target", "key", "positive", "task"):
        parser.add_argument(f"--{flag}", default="")
    parser.add_argument("--names", nargs="*", default=[])
    parser.add_argument("--trained", type=int, default=0)
    parser.add_argument("--about", default="{}")
    parser.add_argument("--folder", default="")
    parser.add_argument("--trainings", nargs="*", default=[], metavar="TASK=FILE")
    return parser.parse_args(argv), parser


def main(argv: Sequence[str]) -> None:
    """Run the command line."""
    args, _ = _parse(argv)
    first = args.files[0] if args.files else ""
    made = {
        "stage": dict,
        "train": lambda: train(first),
        "losses": lambda: losses(first, args.subset, args.suffix),
        "bleu": lambda: bleu(first, args.references, args.sources, args.target, args.suffix),
        "extrapolation": lambda: extrapolation(first),
        "answers": lambda: answers(args.files, args.key, args.names, args.positive),
        "lengths": lambda: lengths(first, args.task, args.trained),
        "documents": lambda: documents(args.files[1:], first, args.references, args.target),
        "choose": lambda: choose(args.files),
        "result": lambda: result(
            args.folder,
            json.loads(args.about),
            {task: _read(path) for task, _, path in (one.partition("=") for one in args.trainings)},
            list(map(_read, args.files)),
            args.names,
        ),
    }[args.what]()
    if args.log:
        made = {**made, **stage(args.log, args.stage)}
    json.dump(made, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
