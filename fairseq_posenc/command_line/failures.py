"""The errors of fairseq's commands that a first day meets, on one line each."""

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Type

from fairseq_posenc.basics.errors import UsageError, flag_of

_FOLDER = "give a folder written by fairseq-preprocess"


class _Known(NamedTuple):
    """An error by its type and a pattern of its text.

    The line that replaces it is formatted with the flags by name, and with the group of the
    pattern as ``said``.
    """

    kind: Type[BaseException]
    pattern: str
    line: str


_KNOWN = (
    _Known(
        Exception,
        r"Could not infer language pair",
        "{data}: has no texts of two languages, as a translation model reads them; give a folder "
        "that fairseq-preprocess wrote for translation, or --source-lang and --target-lang",
    ),
    _Known(
        AssertionError,
        r"Source and target must contain the same number|dataset lengths must match",
        "{data}: the texts of a split have different numbers of lines; make them parallel, "
        "and run fairseq-preprocess again",
    ),
    _Known(
        Exception,
        r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available",
        "no GPU: give --cpu, and drop --fp16 and --quant-noise-scalar (that of a checkpoint by "
        "--model-overrides \"{{'quant_noise_scalar': 0}}\")",
    ),
    _Known(
        AssertionError,
        r"Must specify batch size",
        "--max-tokens: give it, or --batch-size, for the size of a batch",
    ),
    _Known(
        FloatingPointError,
        r"Minimum loss scale reached",
        "the loss is not finite even at --min-loss-scale {min_loss_scale}; lower --lr {lr}, give "
        "--clip-norm, or more --warmup-updates",
    ),
    _Known(
        FloatingPointError,
        r"gradients are Nan/Inf",
        "the gradients are not finite, the training diverged; lower --lr {lr}, give --clip-norm or "
        "more --warmup-updates, and go on from an earlier checkpoint",
    ),
    _Known(
        UnicodeDecodeError,
        r"^",
        "{input}: the text is not UTF-8; convert it, for example with iconv -t UTF-8",
    ),
    _Known(
        AssertionError,
        r"world size is \d+ but have (\d+) available devices",
        "--distributed-world-size {distributed_world_size}: this machine has {said} GPUs, one for "
        "each process",
    ),
)


def explain(error: BaseException, flags: Mapping[str, Any]) -> Optional[str]:
    """The line that replaces a known error of fairseq's, or None.

    Args:
        error: what a command of fairseq raised.
        flags: its flags by name, as far as they are known.
    """
    # fairseq's search for the first NaN fails itself, with another error
    cause: Optional[BaseException] = error
    while cause is not None and not isinstance(cause, FloatingPointError):
        cause = cause.__context__
    error = cause or error
    text = str(error)
    ours: List[str] = re.findall(r"^.*fairseq_posenc: error: (.*)$", text, re.MULTILINE)
    if ours:  # a message of another process
        return ours[-1]
    split = re.match(r"Dataset not found: (\S+)", text)
    if isinstance(error, FileNotFoundError) and split:
        return _missing_split(split.group(1), flags)
    for known in _KNOWN:
        match = re.search(known.pattern, text)
        if isinstance(error, known.kind) and match:
            return known.line.format_map(_Flags(flags, said=match[match.re.groups]))
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = str(os.fspath(error.filename))
        return f"{name}: {error.strerror}" + (f"; {_FOLDER}" if _is_data(name, flags) else "")
    return None


class _Flags(Dict[str, Any]):
    """Flags for ``str.format_map``: the value of an unknown one is its name."""

    def __missing__(self, name: str) -> str:
        return flag_of(name)


def _is_data(path: str, flags: Mapping[str, Any]) -> bool:
    data = str(flags.get("data") or "").split(os.pathsep)
    return path in data or os.path.basename(path).startswith("dict.")


def _missing_split(split: str, flags: Mapping[str, Any]) -> str:
    names = ("train_subset", "valid_subset", "gen_subset")
    whole = {name: str(flags.get(name)) for name in names}
    given = [n for n, value in whole.items() if split in (value, *value.split(","))] or [names[1]]
    folder = flags.get("data") or "the data folder"
    several = "give one split, of " if "," in split else "give "
    files = Path(folder.split(os.pathsep)[0]).glob("*.idx")
    there = sorted({path.name.split(".")[0] for path in files})
    instead = " or ".join(there) or _FOLDER.partition(" ")[2]
    return f"{flag_of(given[0])} {split}: {folder} has no such split; {several}{instead}"


def explained(error: BaseException, flags: Mapping[str, Any]) -> Optional[UsageError]:
    """The :class:`UsageError` that replaces *error*, itself if it is one, or None."""
    if isinstance(error, UsageError):
        return error
    message = explain(error, flags)
    return None if message is None else UsageError(message)
