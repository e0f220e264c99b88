"""One-line messages for the errors of fairseq's commands that beginners meet."""

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

from fairseq_posenc.basics.errors import UsageError, flag_of

_FOLDER = "give a folder written by fairseq-preprocess"


#: For each known error: its type, a pattern of its text, and the line that replaces it.  In the
#: line, ``{flag}`` stands for a flag's value, and ``{said}`` for the pattern's last group.
_KNOWN: Tuple[Tuple[Type[BaseException], str, str], ...] = (
    (
        Exception,
        r"Could not infer language pair",
        "{data}: has no parallel texts, which a translation model needs; give a folder that "
        "fairseq-preprocess wrote for translation, or --source-lang and --target-lang",
    ),
    (
        AssertionError,
        r"Source and target must contain the same number|dataset lengths must match",
        "{data}: the texts of a split have different numbers of lines; make them parallel, "
        "and run fairseq-preprocess again",
    ),
    (
        Exception,
        r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available",
        "no GPU: give --cpu, and drop --fp16 and --quant-noise-scalar (if a checkpoint sets it, "
        "give --model-overrides \"{{'quant_noise_scalar': 0}}\")",
    ),
    (
        AssertionError,
        r"Must specify batch size",
        "--max-tokens: missing; give it or --batch-size, to set the size of a batch",
    ),
    (
        FloatingPointError,
        r"Minimum loss scale reached",
        "the loss is not finite even at --min-loss-scale {min_loss_scale}; lower --lr {lr}, give "
        "--clip-norm, or more --warmup-updates",
    ),
    (
        FloatingPointError,
        r"gradients are Nan/Inf",
        "the gradients are not finite: the training diverged; lower --lr {lr}, give --clip-norm or "
        "more --warmup-updates, and continue from an earlier checkpoint",
    ),
    (
        UnicodeDecodeError,
        r"^",
        "{input}: the text is not UTF-8; convert it, for example with iconv -t UTF-8",
    ),
    (
        AssertionError,
        r"world size is \d+ but have (\d+) available devices",
        "--distributed-world-size {distributed_world_size}: this machine has {said} GPUs, and "
        "each process needs one",
    ),
    # two flags say where a training starts
    (Exception, r"(--finetune-from-model (?:can not|and) [^:\n]*)", "{said}"),
)


def explained(error: BaseException, flags: Mapping[str, Any]) -> Optional[UsageError]:
    """The :class:`UsageError` that replaces an error of a command with *flags*; None if unknown."""
    if isinstance(error, UsageError):
        return error
    line = _line(error, flags)
    return None if line is None else UsageError(line)


def _line(error: BaseException, flags: Mapping[str, Any]) -> Optional[str]:
    # while fairseq searches for the first NaN, it raises another error itself
    cause: Optional[BaseException] = error
    while cause is not None and not isinstance(cause, FloatingPointError):
        cause = cause.__context__
    error = cause or error
    text = str(error)
    ours: List[str] = re.findall(r"^.*fairseq_posenc: error: (.*)$", text, re.MULTILINE)
    if ours:  # a UsageError in another process
        return ours[-1]
    split = re.match(r"Dataset not found: (\S+)", text)
    if isinstance(error, FileNotFoundError) and split:
        return _missing_split(split.group(1), flags)
    for kind, pattern, line in _KNOWN:
        match = re.search(pattern, text)
        if isinstance(error, kind) and match:
            return line.format_map(_Flags(flags, said=match[match.re.groups]))
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = str(os.fspath(error.filename))
        data = str(flags.get("data") or "").split(os.pathsep)
        is_data = name in data or os.path.basename(name).startswith("dict.")
        return f"{name}: {error.strerror}" + (f"; {_FOLDER}" if is_data else "")
    return None


class _Flags(Dict[str, Any]):
    """Flags for ``str.format_map``; a flag without a value is shown by its name."""

    def __missing__(self, name: str) -> str:
        return flag_of(name)


def _missing_split(split: str, flags: Mapping[str, Any]) -> str:
    names = ("train_subset", "valid_subset", "gen_subset")
    whole = {name: str(flags.get(name)) for name in names}
    flag = [n for n, value in whole.items() if split in (value, *value.split(","))] or [names[1]]
    folder = flags.get("data") or "the data folder"
    several = "give one split: " if "," in split else "give "
    files = Path(folder.split(os.pathsep)[0]).glob("*.idx")
    there = sorted({path.name.split(".")[0] for path in files})
    instead = " or ".join(there) or _FOLDER.partition(" ")[2]
    return f"{flag_of(flag[0])} {split}: {folder} has no such split; {several}{instead}"
