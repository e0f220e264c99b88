"""Known errors of fairseq's commands, and the lines that replace their tracebacks."""

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Type

from fairseq.registry import REGISTRIES

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.usage import near

_NO_GPU = r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available"
_FOLDER = "give a folder written by fairseq-preprocess"


class _Known(NamedTuple):
    """An error by its type and a pattern of its text.

    The line that replaces it is formatted with the flags by name, the group of the pattern as
    ``found``, and the flag of a setting of this name as ``flag``.  Where *given* names a flag, the
    error is known only in a command with that flag.
    """

    kind: Type[BaseException]
    pattern: str
    line: str
    given: str = ""


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
        _NO_GPU,
        "--cpu: the model was trained with --quant-noise-scalar, which fairseq computes on a GPU "
        "alone; for the weights as they are, give --model-overrides "
        "\"{{'quant_noise_scalar': 0}}\"",
        given="cpu",
    ),
    _Known(Exception, _NO_GPU, "no GPU: give --cpu, and drop --fp16"),
    _Known(
        NotImplementedError,
        r"Unknown post_process option: (.*)",
        "--post-process {found}: unknown; give sentencepiece, wordpiece, subword_nmt or another of "
        "fairseq's symbols",
    ),
    _Known(
        AssertionError,
        r"min_len cannot be larger than max_len",
        "--min-len {min_len}: longer than --max-len-a {max_len_a} and --max-len-b {max_len_b} "
        "allow",
    ),
    _Known(
        AssertionError,
        r"^(\d+) < \1$",  # steps of the search, which ends earlier unless no score is a number
        "the model computes NaN, so the search has no hypothesis; drop --fp16, or give a "
        "checkpoint of a training that did not diverge",
    ),
    _Known(
        ValueError,
        r"requires --beam to be divisible by the number of groups",
        "--diverse-beam-groups {diverse_beam_groups}: --beam {beam} must be divisible by it",
    ),
    _Known(
        AssertionError,
        r"Must specify batch size",
        "--max-tokens: give it, or --batch-size, for the size of a batch",
    ),
    _Known(
        AttributeError,
        r"has no attribute 'is_beginning_of_word'",
        "--mask-whole-words: --bpe {bpe} does not know the beginnings of words; give gpt2, bert, "
        "sentencepiece or bytes",
    ),
    _Known(
        Exception,
        r"nterpolation key '(criterion)\.\w+' not found",
        "--criterion: --task {task} needs its own; give --criterion {task}",
    ),
    _Known(AssertionError, r"--path required", "--path: required; give a checkpoint"),
    _Known(
        Exception, r"Missing mandatory value: (\w+)", "{flag}: required by the other flags; give it"
    ),
    _Known(
        Exception,
        r"Error merging override \w+\.(\w+)=null",
        "{flag}: required by the other flags; give it",
    ),
    _Known(
        AssertionError,
        r"please specify steps or phase_ratio",
        "--phase-ratio: give it, or --warmup-steps, --hold-steps and --decay-steps",
    ),
    _Known(
        json.JSONDecodeError,
        r"^",
        "--eval-bleu-args {eval_bleu_args}: is no JSON object, such as '{{\"beam\": 4}}'",
        given="eval_bleu",
    ),
    _Known(
        RuntimeError,
        r"selected index k out of range",
        "--sampling-topk {sampling_topk}: more than the symbols of the dictionary",
        given="sampling_topk",
    ),
    _Known(
        NotImplementedError,
        r"Constrained decoding with the (\w+) task is not supported",
        "--constraints {constraints}: does not work with --task {found}; drop it",
    ),
    _Known(
        TypeError,
        r"forward\(\) missing \d+ required positional arguments?: 'src_lengths'",
        "--lm-path {lm_path}: is no language model",
        given="lm_path",
    ),
    _Known(
        AttributeError,
        r"has no attribute '(?:forward_encoder|initialize_output_tokens)'",
        "--task {task}: the model does not decode iteratively; give the task that it was trained "
        "on",
    ),
    _Known(
        IndexError,
        r"Target (\d+) is out of bounds",
        "--num-classes {num_classes}: the data have a label number {found}, counted from 0; give "
        "as many classes as label/dict.txt has labels",
        given="num_classes",
    ),
    _Known(
        AssertionError,
        r"expected num_classes=\d+ regression target values on (line \d+, found: .*)",
        "--num-classes {num_classes}: {data}/label has another number of values ({found})",
    ),
    _Known(
        KeyError,
        r"^'target'$",
        "--regression-target: {data}/label has no file with a number for each example, such as "
        "train.label; drop the flag, or write it",
        given="regression_target",
    ),
    _Known(
        KeyError,
        r"^'steps'$",
        "--print-step: is for models that decode iteratively; drop it",
        given="print_step",
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
        "--distributed-world-size {distributed_world_size}: this machine has {found} GPUs, one for "
        "each process",
    ),
    _Known(
        Exception,
        r"Expected to have finished reduction in the prior iteration",
        "--find-unused-parameters: give it where several processes train a model of which an "
        "update can leave parts out, as LayerDrop does",
    ),
    _Known(
        RuntimeError,
        r"Connection (?:closed|reset) by peer|remote process exited",
        "another process of this training has ended; what it printed says why",
    ),
    _Known(
        RuntimeError,
        r"waiting for clients. (\d+/\d+) clients joined",
        "--distributed-world-size {distributed_world_size}: {found} processes came in time; start "
        "all of them",
    ),
    _Known(
        Exception,
        r"process \d+ terminated with (signal \w+|exit code \d+)",
        "a process of this training ended with {found}; what it printed says why",
    ),
    _Known(ValueError, r"^(--[a-z].*)$", "{found}"),  # one line already, of fairseq's
)


def explain(error: BaseException, flags: Mapping[str, Any]) -> Optional[str]:
    """The line that replaces a known error of fairseq's, or None.

    Args:
        error: what a command of fairseq raised.
        flags: its flags by name, as far as they are known.
    """
    # fairseq's search for the first NaN fails itself, with another error
    error = next((e for e in _chain(error) if isinstance(e, FloatingPointError)), error)
    text = str(error)
    ours: List[str] = re.findall(r"^.*fairseq_posenc: error: (.*)$", text, re.MULTILINE)
    if ours:  # a message of another process
        return ours[-1]
    split = re.match(r"Dataset not found: (\S+)", text)
    if isinstance(error, FileNotFoundError) and split:
        return _missing_split(split.group(1), flags)
    for known in _KNOWN:
        match = re.search(known.pattern, text)
        if isinstance(error, known.kind) and match and (not known.given or flags.get(known.given)):
            found = match.group(match.re.groups)
            return known.line.format_map(_Flags(flags, found=found, flag=flag_of(found)))
    if isinstance(error, KeyError) and error.args:
        return _no_such_name(error.args[0], flags)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = os.fspath(error.filename)
        folder, file = os.path.split(str(name))
        if file == "dict.txt" and flags.get("lm_path"):
            return (
                f"--lm-path {flags['lm_path']}: fairseq reads its dictionary from {folder}, which "
                "has no dict.txt; copy it there: it has to be that of the target language"
            )
        advice = f"; {_FOLDER}" if _is_data(str(name), flags) else ""
        return f"{name}: {error.strerror}{advice}"
    return None


def _no_such_name(name: str, flags: Mapping[str, Any]) -> Optional[str]:
    """The line for a flag whose unknown value fairseq reports as a bare KeyError, or None."""
    if name == flags.get("best_checkpoint_metric"):
        return (
            f"--best-checkpoint-metric {name}: the validation has no such value; give one that its "
            "line in the log shows after valid_, such as loss"
        )
    if name == flags.get("eval_bleu_detok"):
        known = REGISTRIES["tokenizer"]["registry"]
        return f"--eval-bleu-detok {name}: unknown{near(name, list(known))}"
    return None


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """The error, and those that were being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__context__


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
