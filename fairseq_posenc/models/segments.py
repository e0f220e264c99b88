"""Segments of masked language models: default and checks of ``--segments``, and segment labels."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import is_fine_tuning
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.flags.settings import setting

SINGLE, PAIRS = "single", "pairs"


class Samples(NamedTuple):
    """Properties of a pre-training task's samples, each a function of the task's settings."""

    pairs: Callable[[Options], bool]  # whether they are pairs of texts
    # if documents in one sample cannot be computed separately, the reason and the flag to drop
    unpacked: Callable[[Options], Optional[str]]


#: :class:`Samples` of pre-training tasks, keyed by the name of the task.
SAMPLES: Dict[str, Samples] = {}


def samples_of(settings: Options) -> Optional[Samples]:
    """The entry in :data:`SAMPLES` for the task of *settings*, or None if there is no entry."""
    return SAMPLES.get(option(settings, "task") or option(settings, "_name"))


@dataclass
class SegmentFlags:
    """The flags of segment embeddings."""

    num_segments: Optional[int] = setting(
        0, "number of segment embeddings; 0 for none", at_least=0, at_most=2**16
    )
    segments: Optional[str] = setting(
        None,
        "single: all tokens are in the first segment; pairs: the text after a separator is in the "
        "second (default: pairs in fine-tuning, and in pre-training if samples are pairs or lines; "
        "else single)",
        choices=(SINGLE, PAIRS),
    )


def special_tokens(
    settings: Options, dictionary: Dictionary, pairs: bool
) -> Tuple[Optional[int], Optional[int]]:
    """The number of the token that begins a sample of a task, and of the separator of two texts.

    A task without such flags begins with ``<s>``.  It has BERT's pairs, without a separator besides
    the ``</s>`` of each text, if *pairs*, the model's ``reads_pairs``, is set, else RoBERTa's.
    """
    first = option(settings, "init_token", dictionary.bos())
    return first, option(settings, "separator_token", None if pairs else dictionary.eos())


def resolve_segments(cfg: Options, settings: Options) -> None:
    """Set ``segments`` in a complete configuration, in place, unless it was given.

    Samples count as pairs in fine-tuning, and in pre-training if the task makes pairs or each
    sample is a line.  Other samples are blocks of running text, where separators end sentences.
    """
    several = cfg.num_segments > 1
    if cfg.segments is None:
        pairs = is_fine_tuning(settings) or bool(samples_are_pairs(settings))
        cfg.segments = PAIRS if several and pairs else SINGLE
    elif cfg.segments == PAIRS and not several:
        raise UsageError(
            f"--segments {PAIRS}: the model has no second segment; give --num-segments 2"
        )


def refuse_pairs_in_blocks(args: Options) -> None:
    """Refuse ``--segments pairs`` for pre-training on blocks of running text."""
    if option(args, "segments") == PAIRS and samples_are_pairs(args) is False:
        mode = option(args, "sample_break_mode")
        raise UsageError(
            f"--segments {PAIRS}: --sample-break-mode {mode} makes blocks of running text; give "
            "--sample-break-mode eos, with a pair 'text </s> text' in each line of the data"
        )


def samples_are_pairs(settings: Options) -> Optional[bool]:
    """Whether a pre-training task has pairs, or lines that may be pairs; None for other tasks."""
    mode, samples = option(settings, "sample_break_mode"), samples_of(settings)
    if mode is None:
        return None
    return str(mode) == "eos" or (samples is not None and samples.pairs(settings))


def segment_labels(tokens: Tensor, padding: int, separator: int, num_segments: int) -> Tensor:
    """The segment of each token: 0 for [CLS] and the first text, 1 for the second text.

    A text includes the separators after it, one or several, so the labels are correct in BERT's
    format, ``[CLS] a [SEP] b [SEP]``, and in RoBERTa's, ``<s> a </s> </s> b </s>``.

    >>> segment_labels(torch.tensor([[0, 7, 8, 2, 9, 2, 1]]), 1, 2, 2)
    tensor([[0, 0, 0, 0, 1, 1, 0]])
    >>> segment_labels(torch.tensor([[0, 7, 8, 2, 2, 9, 2]]), 1, 2, 2)
    tensor([[0, 0, 0, 0, 0, 1, 1]])

    *tokens* (B, T) may be padded on either side; the labels (B, T) are int64, 0 for padding.  If
    there are more texts than *num_segments*, the further texts get the last segment's label.
    """
    real, ends = tokens.ne(padding), tokens.eq(separator)
    begins = ends.roll(1, dims=1) & ~ends & real  # a token after a separator
    begins[:, :1] = False
    texts = begins.long().cumsum(dim=1).clamp(max=num_segments - 1)
    return texts.masked_fill(~real, 0)


def first_text_lengths(tokens: Tensor, padding: int, separator: int) -> Tensor:
    """The number of tokens of the first text of a pair, (B, 1), [CLS] and separators included.

    >>> first_text_lengths(torch.tensor([[0, 7, 8, 2, 9, 2, 1]]), 1, 2)
    tensor([[4]])

    For a single text, this is the number of all its tokens; see :func:`segment_labels`.
    """
    first = segment_labels(tokens, padding, separator, 2).eq(0) & tokens.ne(padding)
    return first.sum(dim=1, keepdim=True)


#: Number of batches that :class:`FirstBatches` looks at.
PATIENCE = 10


class FirstBatches:
    """Logs *message* if the first batches give a flag nothing to act on; ``%d`` is their number."""

    def __init__(
        self, log: Callable[[str, int], None], message: str, batches: int = PATIENCE
    ) -> None:
        self.log, self.message = log, message
        #: the number of batches that remain to be looked at
        self.left = batches

    def saw(self, present: bool) -> None:
        """Count a batch; *present* tells whether the flag has something to act on."""
        self.left = 0 if present else self.left - 1
        if not present and self.left == 0:
            self.log(self.message, PATIENCE)


def label_batches(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a task's step: masked language models also get inputs made from the unmasked tokens.

    Masking can remove a separator or insert one.  Therefore models of text pairs also get segment
    labels (all 0 in blocks of running text), and models that use separators the unmasked tokens.
    """

    def wrapper(
        task: FairseqTask, sample: Dict[str, Any], model: Layer, *args: object, **kwargs: object
    ) -> Any:
        inputs, pairs = sample.get("net_input", {}), None
        reads_original = getattr(model, "reads_original", False)
        if getattr(model, "reads_pairs", False):
            pairs = samples_are_pairs(task_settings(task))  # None in tasks without masking
        if "src_tokens" in inputs and (reads_original or pairs is not None):
            encoder = model.encoder.sentence_encoder
            target = sample["target"]  # padding except at masked tokens
            original = torch.where(target.ne(encoder.padding_idx), target, inputs["src_tokens"])
            if reads_original:
                inputs.setdefault("original", original)
            if pairs is not None and "segment_labels" not in inputs:
                labels = encoder.segment_labels(original)
                inputs["segment_labels"] = labels if pairs else torch.zeros_like(labels)
        return step(task, sample, model, *args, **kwargs)

    return wrapper
