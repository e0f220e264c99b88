"""Perplexity of language models at a context length.

`fairseq-posenc plot extrapolation --help` defines it.
"""

import math
import os
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import FairseqLanguageModel
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.loader import load, usable_device
from fairseq_posenc.checkpoints.reading import model_settings, read_checkpoint
from fairseq_posenc.checkpoints.settings import task_of
from fairseq_posenc.encodings import encoding_flags
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.values import read_overrides


class EvalConfig(NamedTuple):
    """Settings of the evaluation, the same for every run.

    Args:
        data: output folder of fairseq-preprocess.
        subset: name of the split.
        lengths: tokens per window, in increasing order.
        last: tokens scored per window.
        tokens: total number of tokens to score, or None for all.
        max_tokens: tokens per batch.
        cpu: do not use a GPU.
    """

    data: str
    subset: str
    lengths: List[int]
    last: int
    tokens: Optional[int]
    max_tokens: int
    cpu: bool


class Run(NamedTuple):
    """One checkpoint of the command line, with its overrides."""

    name: str
    path: str
    overrides: Dict[str, Any]


class Measurement(NamedTuple):
    """A run and its losses."""

    run: Run
    trained: int  # tokens per sample in training
    longest: float  # size of its position table, or infinity
    tokens: int  # number of scored tokens, the same at every length
    bits: Dict[int, float]  # mean loss in bits per token, by length

    def perplexity(self, length: int) -> float:
        """2 to the power of the loss at *length*."""
        return 2.0 ** self.bits[length]


class Text(NamedTuple):
    """A text for a language model: target i is predicted from the inputs up to i."""

    inputs: Tensor  # (N,)
    targets: Tensor  # (N,)


def parse_run(text: str) -> Run:
    """Parse ``NAME=CHECKPOINT`` or ``NAME=CHECKPOINT {...}``.

    Raises:
        UsageError: *text* has another form.
    """
    match = re.fullmatch(r"([^=]+)=(\S.*?)(?:\s+(\{.*\}))?\s*", text, re.DOTALL)
    if match is None:
        raise UsageError(f"{text}: expected NAME=CHECKPOINT or 'NAME=CHECKPOINT {{overrides}}'")
    overrides = read_overrides(match.group(3) or "{}")
    return Run(match.group(1).strip(), match.group(2), overrides)


def check_run(run: Run) -> int:
    """Check that a run is of a language model, and return its training length in tokens.

    Raises:
        UsageError: the file cannot be read, is of another task, was trained to predict something
            other than the next token, or lacks a setting that is overridden.
    """
    checkpoint = read_checkpoint(run.path, lazy=True)
    task = task_of(checkpoint)
    name = option(task, "_name") or option(task, "task")
    if name != "language_modeling":
        raise UsageError(
            f"{run.path}: was trained with --task {name}; give a checkpoint of language_modeling"
        )
    for flag in ("add_bos_token", "self_target", "past_target"):
        if option(task, flag):
            raise UsageError(
                f"{run.path}: was trained with {flag_of(flag)}; only models that read "
                "unmodified text and predict the next token can be measured"
            )
    known = {*model_settings(checkpoint), *(flag.name for flag in encoding_flags())}
    for key in run.overrides:
        if key not in known:
            raise UsageError(f"{run.name}: override {key!r}: {run.path} has no such setting")
    return int(task.tokens_per_sample)


def longest_context(model: FairseqLanguageModel) -> float:
    """Size of the model's position table, or infinity if it takes any length."""
    encoding = getattr(model.decoder, "encoding", None)
    if encoding is None:  # fairseq's own
        return getattr(model.decoder.embed_positions, "max_positions", math.inf)
    return encoding.stack.max_positions if encoding.bounded else math.inf


def read_text(folder: str, subset: str, dictionary: Dictionary) -> Text:
    """A split of a binarised data set, as one text.

    Raises:
        UsageError: there is no such split.
    """
    dataset = data_utils.load_indexed_dataset(os.path.join(folder, subset), dictionary)
    if dataset is None or not len(dataset):
        raise UsageError(f"--subset {subset}: not found in {folder}")
    targets = torch.cat([dataset[index] for index in range(len(dataset))]).long()
    # as in fairseq, </s> precedes the first token
    return Text(torch.cat((targets.new_tensor([dictionary.eos()]), targets[:-1])), targets)


def choose_windows(size: int, config: EvalConfig) -> Tensor:
    """End positions of the windows, the same for every length, in a text of *size* tokens.

    Args:
        size: number of tokens.
        config: if it limits ``tokens``, the windows are spread over the text.

    Returns:
        (W,), the index after the last token of each window.

    Raises:
        UsageError: the text is too short.
    """
    ends = torch.tensor(range(config.lengths[-1], size + 1, config.last))
    if not len(ends):
        raise UsageError(f"--lengths {config.lengths[-1]}: {config.subset} has only {size} tokens")
    wanted = math.ceil(config.tokens / config.last) if config.tokens else len(ends)
    if wanted < len(ends):
        ends = ends[torch.linspace(0, len(ends) - 1, wanted).long()]
    return ends


@torch.no_grad()
def mean_loss(
    model: FairseqLanguageModel, text: Text, windows: Tensor, length: int, config: EvalConfig
) -> float:
    """Mean loss over the last tokens of all windows, in bits per token.

    Args:
        model: a language model in evaluation mode.
        text: the text, on the model's device.
        windows: their end positions, (W,).
        length: tokens per window.
        config: number of scored tokens per window, and tokens per batch, which a single window
            may exceed.
    """
    total = 0.0
    before = torch.arange(-length, 0)
    for ends in windows.split(max(1, config.max_tokens // length)):
        tokens = (ends.unsqueeze(1) + before).to(text.inputs.device)  # (B, L)
        target = text.targets[tokens[:, -config.last :]]  # (B, K)
        features = model(text.inputs[tokens], features_only=True)[0][:, -config.last :]  # (B, K, C)
        scores = model.get_normalized_probs(
            (model.output_layer(features), None), log_probs=True, sample={"target": target}
        )  # (B, K, V)
        total -= float(scores.gather(2, target.unsqueeze(2)).sum(dtype=torch.float64))
    return total / (len(windows) * config.last) / math.log(2)


def measure(run: Run, config: EvalConfig) -> Measurement:
    """Measure one run at every length that its model can read.

    Raises:
        UsageError: there is no such length, or the run or its data cannot be read.
    """
    trained = check_run(run)
    if not os.path.isfile(os.path.join(config.data, "dict.txt")):
        raise UsageError(
            f"{config.data}: no dict.txt there; give the output folder of fairseq-preprocess"
        )
    overrides = {**run.overrides, "data": config.data}
    device = usable_device(config.cpu)
    loaded = load(run.path, overrides=overrides, device=device)
    model, task = loaded.model, loaded.task
    longest = longest_context(model)
    lengths = [length for length in config.lengths if length <= longest]
    if not lengths:
        raise UsageError(
            f"--lengths {config.lengths[0]}: {run.name} has a table of {longest:g} positions; add "
            "a length that fits"
        )
    if lengths != config.lengths:
        _log(f"{run.name}: its table ends at {longest:g} positions, and so does its curve")
    text = read_text(config.data, config.subset, task.source_dictionary)
    windows = choose_windows(len(text.targets), config)
    text = Text(text.inputs.to(device), text.targets.to(device))
    measurement = Measurement(run, trained, longest, len(windows) * config.last, {})
    for length in lengths:
        measurement.bits[length] = mean_loss(model, text, windows, length, config)
        _log(f"{run.name}: {measurement.perplexity(length):.2f} at {length} tokens, {run.path}")
    return measurement


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
