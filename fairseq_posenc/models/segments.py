"""The ``--segments`` of a masked language model: its default by task, its checks, its batches."""

from dataclasses import dataclass
from typing import Any, Dict, Optional

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import is_fine_tuning
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.flags.settings import setting

SINGLE, PAIRS = "single", "pairs"


@dataclass
class SegmentFlags:
    """The flags of segment embeddings."""

    num_segments: Optional[int] = setting(
        0, "number of segment embeddings; 0 for none", role="model", at_least=0, at_most=2**16
    )
    segments: Optional[str] = setting(
        None,
        "segments of tokens: single, all in the first; pairs, the text after a separator in the "
        "second (default: pairs when fine-tuning and where samples of pre-training are pairs or "
        "lines, else single)",
        role="model",
        choices=(SINGLE, PAIRS),
    )


def resolve_segments(cfg: Options, settings: Options) -> None:
    """Set ``segments`` in a complete configuration, in place, unless it was given.

    Texts are pairs in the tasks for fine-tuning, in ``--task masked_lm_pairs`` with ``--pairs``,
    and where each sample is a line; other blocks hold running text, whose separators divide
    sentences.

    Args:
        cfg: flat configuration that accepts new entries.
        settings: the parsed command line, or the settings of the task.

    Raises:
        UsageError: there are no segments to choose from.
    """
    several = cfg.num_segments > 1
    if cfg.segments is None:
        pairs = is_fine_tuning(settings) or bool(_samples_are_pairs(settings))
        cfg.segments = PAIRS if several and pairs else SINGLE
    elif cfg.segments == PAIRS and not several:
        raise UsageError(
            f"--segments {PAIRS}: the model has no second segment; give --num-segments 2"
        )


def refuse_pairs_in_blocks(args: Options) -> None:
    """Refuse a training on pairs from blocks of running text.

    Args:
        args: parsed command line.

    Raises:
        UsageError: naming the flag that keeps the pairs apart.
    """
    if option(args, "segments") == PAIRS and _samples_are_pairs(args) is False:
        mode = option(args, "sample_break_mode")
        raise UsageError(
            f"--segments {PAIRS}: --sample-break-mode {mode} makes blocks of running text; give "
            "--sample-break-mode eos, and a pair 'text </s> text' in each line, or --task "
            "masked_lm_pairs --pairs nsp"
        )


def _samples_are_pairs(settings: Options) -> Optional[bool]:
    """Whether pre-training is on pairs, or on lines that may be pairs; None for other tasks."""
    mode, pairs = option(settings, "sample_break_mode"), option(settings, "pairs")
    if mode is None:
        return None
    return str(mode) == "eos" or str(pairs or "none") != "none"


def label_batch(task: FairseqTask, sample: Dict[str, Any], encoder: Layer) -> None:
    """Add ``segment_labels`` to a batch of ``masked_lm`` or ``masked_lm_pairs``, in place.

    A separator can itself be masked, so the labels come from the original tokens.  A block of
    running text is one segment.

    Args:
        task: the task; those without ``--sample-break-mode`` mask nothing, and are left alone.
        sample: the batch; ``target`` (B, T) is padding except at masked tokens.
        encoder: the sentence encoder, which reads pairs.
    """
    pairs = _samples_are_pairs(task_settings(task))
    inputs = {} if pairs is None else sample["net_input"]
    if "src_tokens" not in inputs or "segment_labels" in inputs:
        return
    labels = encoder.segment_labels(original_tokens(sample, encoder.padding_idx))
    inputs["segment_labels"] = labels if pairs else torch.zeros_like(labels)


def original_tokens(sample: Dict[str, Any], padding: int) -> Tensor:
    """The tokens (B, T) of a batch of masked texts before they were masked.

    Args:
        sample: the batch; ``target`` (B, T) is *padding* except at masked tokens.
    """
    tokens, target = sample["net_input"]["src_tokens"], sample["target"]
    return torch.where(target.ne(padding), target, tokens)
