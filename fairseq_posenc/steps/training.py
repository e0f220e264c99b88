"""A training: a step that goes on in its folder where it was interrupted."""

import contextlib
import math
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.lock import hold
from fairseq_posenc.steps.markers import (
    TRAINING_FILES,
    digest_of,
    marker_of,
    newest,
    read_object,
    write_object,
)
from fairseq_posenc.steps.processes import say
from fairseq_posenc.steps.step import Step, check, finish, inputs_of, plain_words, run_all

LAST = "checkpoint_last.pt"
#: Flags that end a training: a larger value goes on with it.
_LENGTHS = ("--max-update", "--max-epoch")
#: Flags whose product with the passes and processes is the batch of an update.
_BATCH = ("--max-tokens", "--batch-size")
_SHARES = ("--update-freq", "--distributed-world-size", *_BATCH)
_ROUNDING = 0.01  # part of a batch that is lost where processes cannot share it equally
#: Flags that do not decide what is trained: where, and what is logged and kept.
_FREE = re.compile(
    r"--(distributed-.*|device-id|local-rank|nprocs-per-node|ddp-backend|cpu|user-dir|save-dir|"
    r"log-.*|num-workers|keep-.*|save-interval.*|validate-interval.*|no-progress-bar|"
    r"tensorboard-logdir|wandb-project|no-epoch-checkpoints|batch-size-valid|max-tokens-valid|"
    r"update-epoch-batch-itr|stop-time-hours|empty-cache-freq|data-buffer-size)"
)
#: Flags that name a checkpoint to start from, whose content decides the result.
STARTS = ("--restore-file", "--finetune-from-model", "--lora-base")
_START = re.compile(r"num\. shared model params: ")
_END = re.compile(r"done training in ")
_PROGRESS = re.compile(r"""\b(num_updates|epoch)["']?[ =:]+["']?(\d+)""")


def flags_in(words: List[str]) -> Dict[str, str]:
    """The flags of a command with their values, and its other words under an empty name.

    >>> flags_in(["fairseq-train", "data", "--lr", "1", "--betas=(0.9, 0.98)", "--fp16"])
    {'': 'fairseq-train data', '--lr': '1', '--betas': '(0.9, 0.98)', '--fp16': ''}
    """
    found: Dict[str, List[str]] = {"": []}
    last = ""
    for word in words:
        if word.startswith("--"):
            last, equals, value = word.partition("=")
            found[last] = [value] if equals else []
        else:
            found[last].append(word)
    return {flag: " ".join(values) for flag, values in found.items()}


def train(
    step: Step, repair: Callable[[str], None], waits: bool = False, follows: bool = False
) -> None:
    """Train in the folder of a step, or go on there; a training that is over is not repeated.

    Args:
        step: a step of one command, ``fairseq-train`` with the folder as ``--save-dir``.
        repair: is called with the folder, to replace a last checkpoint that is damaged.
        waits: whether to wait for another process that is at work in the folder.
        follows: whether a process on another node takes care of the folder: this one neither locks
            nor writes it.

    Raises:
        UsageError: the training in the folder was begun with other data or other flags, or the
            command fails.
    """
    if follows:
        if _stands(step)[0] != "done":
            run_all(step, (), {})
        return
    with hold(step.folder, step.name, waits, step.other) as (descriptors, variables):
        check(step)
        state, known = _stands(step)
        if state == "done":
            say(f"{step.folder}: already trained")
            if "flags" not in read_object(marker_of(step.folder, step.name)):
                finish(step, known)  # by an earlier version
            return
        write_object(marker_of(step.folder, step.name), known)
        remove_leftovers(step.folder)
        if (step.folder / LAST).exists():
            repair(str(step.folder))
        elif "--log-file" in flags_in(list(step.words)):  # without checkpoint, of another training
            with contextlib.suppress(OSError):
                os.unlink(flags_in(list(step.words))["--log-file"])
        run_all(step, descriptors, variables)
        lengths = {flag: known["flags"].get(flag, "") for flag in _LENGTHS}
        finish(step, {**known, "lengths": {} if _out_of_time(step) else lengths})


def _out_of_time(step: Step) -> bool:
    """True if a training ended by ``--stop-time-hours``, or has no log that says how it ended."""
    flags = flags_in(list(step.words))
    if "--stop-time-hours" not in flags:
        return False
    text = _last_training(Path(flags.get("--log-file", "")))
    return not text or "cumulative_training_time" in text


def _last_training(log: Path) -> str:
    """The text of the last training in a log of ``fairseq-train``; empty without a log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    starts = [match.end() for match in _START.finditer(text)]
    return text[starts[-1] :] if starts else text


def is_over(log: Path) -> bool:
    """True if the last training in a log of ``fairseq-train`` came to its end."""
    return bool(_END.search(_last_training(log)))


def remove_leftovers(folder: Path) -> None:
    """Remove the half-written checkpoints that a killed training leaves."""
    for path in folder.glob("*.pt.tmp"):
        path.unlink()


def _stands(step: Step) -> Tuple[str, Dict[str, Any]]:
    """How far a training is, ``done`` or ``begun``, and what its marker has to say.

    Raises:
        UsageError: it was begun with other data or other flags.
    """
    flags = flags_in(plain_words(step))
    for flag in STARTS:
        if flag in flags:
            place = flags_in(list(step.words))[flag]
            flags[flag] = digest_of(place) if os.path.exists(place) else place
    known: Dict[str, Any] = {"flags": flags, "settings": list(step.settings)}
    known["inputs"] = inputs_of(step)
    marker = read_object(marker_of(step.folder, step.name))
    checkpoints = list(step.folder.glob("checkpoint*.pt"))
    if not checkpoints:  # nothing is trained yet
        return "begun", known
    if "flags" not in marker:
        _check_age(step, checkpoints)
        known["lengths"] = _lengths_in_log(step)
    else:
        _compare(step, marker, known)
        known["lengths"] = marker.get("lengths", {})
    done = _is_reached(flags, known["lengths"])
    outputs = all(os.path.exists(place) for place in step.made)
    return "done" if done and outputs else "begun", known


def _compare(step: Step, marker: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    digests, then = list(known["inputs"].values()), list(marker["inputs"].values())
    if len(digests) != len(then):
        raise UsageError(
            f"{step.folder} was begun with {len(then)} inputs, and not {len(digests)}; give "
            f"{step.other}"
        )
    for (place, _), digest, before in zip(step.inputs, digests, then):
        if digest != before:
            raise UsageError(
                f"{step.folder} was begun with other data than {place} has now; give {step.other}"
            )
    was, now = marker["flags"], known["flags"]
    batches = {flag: (_batch(was, flag), _batch(now, flag)) for flag in _BATCH}
    whole = all(math.isclose(*pair, rel_tol=_ROUNDING) for pair in batches.values())
    for flag in sorted({*was, *now}):
        free = _FREE.fullmatch(flag) or flag in _LENGTHS or (whole and flag in _SHARES)
        if not free and was.get(flag) != now.get(flag):
            raise UsageError(
                f"{step.folder} was begun {_shown(flag, was)}, and not {_shown(flag, now)}; "
                f"give {step.other}, or the same flags"
            )
    if marker["settings"] != known["settings"]:
        raise UsageError(f"{step.folder} was begun with other settings; give {step.other}")


def _shown(flag: str, flags: Mapping[str, str]) -> str:
    return f"with {flag} {flags[flag]}".strip() if flag in flags else f"without {flag}"


def _batch(flags: Mapping[str, str], flag: str) -> float:
    """The tokens or samples of an update; not a number where a flag has several values."""
    names = (flag, "--update-freq", "--distributed-world-size")
    try:
        return math.prod(float(flags.get(name, 0 if name == flag else 1)) for name in names)
    except ValueError:
        return math.nan


def _is_reached(flags: Mapping[str, str], lengths: Mapping[str, str]) -> bool:
    wanted = {flag: flags[flag] for flag in _LENGTHS if flags.get(flag)}
    try:
        return bool(lengths) and all(
            float(lengths.get(flag) or 0) >= float(value) for flag, value in wanted.items()
        )
    except ValueError:  # fairseq says what is wrong with the value
        return False


def _check_age(step: Step, checkpoints: List[Path]) -> None:
    """Refuse a training without a marker, of an earlier version, that is older than its data."""
    begun = [path for name in ("command", "train.log") for path in step.folder.glob(name)]
    times = [path.stat().st_mtime for path in begun]
    oldest = min([*times, max(path.stat().st_mtime for path in checkpoints)])
    for place, _ in step.inputs:
        if newest(place, TRAINING_FILES) > oldest:
            raise UsageError(
                f"{step.folder} is of an earlier version, and older than the data in {place}; give "
                f"{step.other}, or, if it is of these data, touch the files in it"
            )


def _lengths_in_log(step: Step) -> Dict[str, str]:
    """How long a training without a marker was; nothing if its log does not show its end."""
    log = Path(flags_in(list(step.words)).get("--log-file", ""))
    if not is_over(log):
        return {}
    seen = {"epoch": 0, "num_updates": 0}
    for name, number in _PROGRESS.findall(log.read_text(encoding="utf-8", errors="replace")):
        seen[name] = max(seen[name], int(number))
    return {"--max-update": str(seen["num_updates"]), "--max-epoch": str(seen["epoch"])}
