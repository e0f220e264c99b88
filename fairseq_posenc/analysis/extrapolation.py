"""Perplexity of language models at a context length.

`fairseq-posenc plot extrapolation --help` defines it.
"""

import ast
import math
import os
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import data_utils
from torch import Tensor

from fairseq_posenc.checkpoints.reading import model_settings, read_checkpoint
from fairseq_posenc.encodings import encoding_flags
from fairseq_posenc.errors import UsageError


class How(NamedTuple):
    """What is measured, of every run.

    Args:
        data: folder that fairseq-preprocess made.
        subset: name of the text.
        lengths: of the windows, in tokens, growing.
        last: tokens scored of each window.
        tokens: tokens scored in all, or None for all there are.
        max_tokens: of a batch.
        cpu: whether a GPU is left alone.
    """

    data: str
    subset: str
    lengths: List[int]
    last: int
    tokens: Optional[int]
    max_tokens: int
    cpu: bool


class Run(NamedTuple):
    """What the command line says of one checkpoint."""

    name: str
    path: str
    overrides: Dict[str, Any]


class Reading(NamedTuple):
    """A run and what was measured of it."""

    run: Run
    trained: int  # tokens of a sample in training
    longest: float  # positions of its table, or infinity
    tokens: int  # scored at every length
    bits: Dict[int, float]  # mean loss in bits a token, by length

    def perplexity(self, length: int) -> float:
        """2 to the loss."""
        return 2.0 ** self.bits[length]


class Text(NamedTuple):
    """A text as a model sees it: token i is to be predicted from the inputs up to i."""

    inputs: Tensor  # (N,)
    targets: Tensor  # (N,)


def parse_run(text: str) -> Run:
    """A run from ``NAME=CHECKPOINT`` or ``NAME=CHECKPOINT {...}``.

    Raises:
        UsageError: if *text* has another form.
    """
    match = re.fullmatch(r"([^=]+)=(\S.*?)(?:\s+(\{.*\}))?\s*", text, re.DOTALL)
    if match is None:
        raise UsageError(f"{text}: expected NAME=CHECKPOINT or 'NAME=CHECKPOINT {{overrides}}'")
    try:
        overrides = dict(ast.literal_eval(match.group(3) or "{}"))
    except (ValueError, SyntaxError, TypeError) as error:
        raise UsageError(
            f"{match.group(3)}: expected overrides such as {{'rotary_scaling': 'yarn'}}"
        ) from error
    return Run(match.group(1).strip(), match.group(2), overrides)


def check_run(run: Run) -> int:
    """The length of training of a checkpoint, in tokens, if it is of a language model.

    Raises:
        UsageError: the file cannot be read, is of another task, was trained on something else than
            the next token, or has no setting of an overridden name.
    """
    checkpoint = read_checkpoint(run.path, lazy=True)
    settings: Any = checkpoint["args" if checkpoint.get("cfg") is None else "cfg"]
    settings = settings["task"] if hasattr(settings, "keys") else settings
    task = dict(settings) if hasattr(settings, "keys") else dict(vars(settings))
    name = task.get("_name") or task.get("task")
    if name != "language_modeling":
        raise UsageError(f"{run.path}: is of --task {name}; give one of language_modeling")
    for flag in ("add_bos_token", "self_target", "past_target"):
        if task.get(flag):
            raise UsageError(
                f"{run.path}: was trained with --{flag.replace('_', '-')}; only models that read "
                "text as it is and predict the next token are measured"
            )
    known = {*model_settings(checkpoint), *(flag.name for flag in encoding_flags())}
    for key in run.overrides:
        if key not in known:
            raise UsageError(f"{run.name}: override {key!r}: {run.path} has no such setting")
    return int(task["tokens_per_sample"])


def longest_context(model: Any) -> float:
    """Positions of the model's table, or infinity where it has none that ends."""
    encoding = getattr(model.decoder, "encoding", None)
    if encoding is None:  # fairseq's own
        return getattr(model.decoder.embed_positions, "max_positions", math.inf)
    return encoding.stack.max_positions if encoding.bounded else math.inf


def read_text(folder: str, subset: str, dictionary: Any) -> Text:
    """A set that fairseq-preprocess made, as one text.

    Raises:
        UsageError: if there is none.
    """
    dataset = data_utils.load_indexed_dataset(os.path.join(folder, subset), dictionary)
    if dataset is None or not len(dataset):
        raise UsageError(f"--subset {subset}: there is no text of that name in {folder}")
    targets = torch.cat([dataset[index] for index in range(len(dataset))]).long()
    # fairseq has </s> before the first token, too
    return Text(torch.cat((targets.new_tensor([dictionary.eos()]), targets[:-1])), targets)


def choose_windows(size: int, how: How) -> Tensor:
    """Where the windows of every length end in a text of *size* tokens.

    Args:
        size: tokens of the text.
        how: its ``tokens``, where given, spread the windows over the text.

    Returns:
        (W,), the index of the token after the last of each window.

    Raises:
        UsageError: if the text is too short.
    """
    ends = torch.tensor(range(how.lengths[-1], size + 1, how.last))
    if not len(ends):
        raise UsageError(f"--lengths {how.lengths[-1]}: {how.subset} has only {size} tokens")
    wanted = math.ceil(how.tokens / how.last) if how.tokens else len(ends)
    if wanted < len(ends):
        ends = ends[torch.linspace(0, len(ends) - 1, wanted).long()]
    return ends


@torch.no_grad()
def mean_loss(model: Any, text: Text, windows: Tensor, length: int, how: How) -> float:
    """Mean loss of the last tokens of windows, in bits.

    Args:
        model: a language model in evaluation mode.
        text: on the model's device.
        windows: where they end, (W,).
        length: tokens of a window.
        how: says how many of them are scored, and the size of a batch; a single window may be
            larger.
    """
    total = 0.0
    before = torch.arange(-length, 0)
    for ends in windows.split(max(1, how.max_tokens // length)):
        tokens = (ends.unsqueeze(1) + before).to(text.inputs.device)  # (B, L)
        target = text.targets[tokens[:, -how.last :]]  # (B, K)
        features = model(text.inputs[tokens], features_only=True)[0][:, -how.last :]  # (B, K, C)
        scores = model.get_normalized_probs(
            (model.output_layer(features), None), log_probs=True, sample={"target": target}
        )  # (B, K, words)
        total -= float(scores.gather(2, target.unsqueeze(2)).sum(dtype=torch.float64))
    return total / (len(windows) * how.last) / math.log(2)


def measure(run: Run, how: How) -> Reading:
    """Measure one run at every length that its model can read.

    Raises:
        UsageError: if that is none, or the run or its data cannot be read.
    """
    trained = check_run(run)
    if not os.path.isfile(os.path.join(how.data, "dict.txt")):
        raise UsageError(f"{how.data}: no dict.txt there; give what fairseq-preprocess made")
    overrides = {**run.overrides, "data": how.data}
    (model,), _, task = load_model_ensemble_and_task([run.path], arg_overrides=overrides)
    device = "cuda" if torch.cuda.is_available() and not how.cpu else "cpu"
    model.to(device).eval()
    longest = longest_context(model)
    lengths = [length for length in how.lengths if length <= longest]
    if not lengths:
        raise UsageError(
            f"--lengths {how.lengths[0]}: {run.name} has a table of {longest:g} positions; give "
            "a length up to that, too"
        )
    if lengths != how.lengths:
        _say(f"{run.name}: its table ends at {longest:g} positions, and so does its curve")
    text = read_text(how.data, how.subset, task.source_dictionary)
    windows = choose_windows(len(text.targets), how)
    text = Text(text.inputs.to(device), text.targets.to(device))
    reading = Reading(run, trained, longest, len(windows) * how.last, {})
    for length in lengths:
        reading.bits[length] = mean_loss(model, text, windows, length, how)
        _say(f"{run.name}: {reading.perplexity(length):.2f} at {length} tokens, {run.path}")
    return reading


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
