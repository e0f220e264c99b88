"""Pre-training in the input formats of RoBERTa, Liu et al., arXiv 1907.11692, section 4.2.

=================  ======================================================
format             flags
=================  ======================================================
SEGMENT-PAIR+NSP   ``--pairs nsp``
SENTENCE-PAIR+NSP  ``--pairs nsp --unit sentence``
FULL-SENTENCES     ``--pairs none --sample-break-mode complete``
DOC-SENTENCES      ``--pairs none --sample-break-mode complete_doc``
=================  ======================================================

Masks are of single tokens, whole words, phrases, or spans as in SpanBERT, Joshi et al. 2020, arXiv
1907.10529.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import Any, List, Optional

from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.data import FairseqDataset, PrependTokenDataset, TokenBlockDataset, data_utils
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMTask
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.compat.data import bpe_flags
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import refuse_unless_off
from fairseq_posenc.layers.heads import HEADS
from fairseq_posenc.models.segments import Samples
from fairseq_posenc.packs.pretraining.masked_samples import (
    TOKENS,
    MaskedSamples,
    MaskingConfig,
    check_masking,
    masks_of,
)
from fairseq_posenc.packs.pretraining.text_pairs import NEXT, ORDER, SEGMENT, SENTENCE, TextPairs

logger = logging.getLogger(__name__)

TASK = "masked_lm_pairs"
NONE = "none"
#: fairseq's flags that this task does not support, with the values that switch them off.
_UNSUPPORTED = {
    "shorten_method": "none",
    "include_target_tokens": False,
    "skip_masking": False,
    "d2v2_multi": False,
}


@dataclass
class MaskedLMPairsConfig(MaskingConfig):
    """Flags of ``--task masked_lm_pairs``, in addition to those of ``masked_lm``."""

    pairs: ChoiceEnum((NONE, NEXT, ORDER)) = field(  # type: ignore[valid-type]
        default=NONE,
        metadata={
            "help": "nsp and sop make samples of two texts; the model predicts: nsp, whether the "
            "second follows the first or is from another document; sop, whether they are in order"
        },
    )
    unit: Optional[ChoiceEnum((SEGMENT, SENTENCE))] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "texts of a pair: segment, as many lines as fit; sentence, one line for each "
            "text (default: segment)"
        },
    )
    separator_token: Optional[int] = field(
        default=None, metadata={"help": "id of a separator to add between the texts of a pair"}
    )
    mask_special_tokens: bool = field(
        default=False,
        metadata={
            "help": "with --masking tokens, also mask [CLS] and separators of pairs, as fairseq "
            "does in all texts"
        },
    )


@register_task(TASK, dataclass=MaskedLMPairsConfig)
class MaskedLMPairsTask(MaskedLMTask):
    """``masked_lm`` on running text or on pairs of texts, with dynamic or static masks.

    Blank lines end documents.  Samples and masks depend on ``--seed``, the epoch and
    the data alone, not on the number of workers or on where a training was resumed.
    """

    @classmethod
    def setup_task(cls, cfg: MaskedLMPairsConfig, **kwargs: Any) -> "MaskedLMPairsTask":
        """Load the dictionary, and set up the task.

        Raises:
            UsageError: flags contradict each other.
        """
        _check(cfg)
        if cfg.pairs != NONE and cfg.unit is None:
            cfg.unit = SEGMENT  # recorded in checkpoints
        return super().setup_task(cfg, **kwargs)

    @property
    def relation(self) -> Optional[str]:
        """What the model predicts for pairs, ``nsp`` or ``sop``; None if samples are not pairs."""
        return None if self.cfg.pairs == NONE else str(self.cfg.pairs)

    @property
    def heads(self) -> List[str]:
        """Names of the heads that the model needs besides the head for masked tokens."""
        spans = ["sbo"] if self.cfg.span_boundary_objective else []
        return spans if self.relation is None else [*spans, self.relation]

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: object
    ) -> None:
        """Load a split.

        Raises:
            FileNotFoundError: the split does not exist.
            UsageError: the split has no samples of the chosen format.
        """
        paths = utils.split_paths(self.cfg.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        lines = data_utils.load_indexed_dataset(path, self.source_dictionary, combine=combine)
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        if not (lines.sizes > 1).any():
            raise UsageError(f"{path}: holds blank lines only; give a text")
        words = self.source_dictionary
        if self.relation is None:
            samples = self._running_text(lines)
        else:
            samples = TextPairs(lines, self.cfg, words, path)
        self.datasets[split] = MaskedSamples(
            samples,
            masks_of(self.cfg, samples, words, self.mask_idx, bpe_flags(self), self._spared()),
            words.pad(),
            self.cfg.seed,
            self.cfg.static_masks,
            len(paths),
        )

    def _spared(self) -> List[int]:
        """Special tokens of pairs, not to be masked because [CLS] has to predict the relation."""
        if self.relation is None or self.cfg.mask_special_tokens:
            return []
        words, separator = self.source_dictionary, self.cfg.separator_token
        return [words.bos(), words.eos(), *([] if separator is None else [separator])]

    def _running_text(self, lines: FairseqDataset) -> FairseqDataset:
        words = self.source_dictionary
        blocks = TokenBlockDataset(
            lines,
            lines.sizes,
            self.cfg.tokens_per_sample - 1,  # [CLS] is added
            pad=words.pad(),
            eos=words.eos(),
            break_mode=self.cfg.sample_break_mode,
        )
        return PrependTokenDataset(blocks, words.bos())

    def build_model(self, args: Options, from_checkpoint: bool = False) -> nn.Module:
        """Build the model, with heads for the relation of pairs and the span boundary objective.

        Raises:
            UsageError: the model cannot have these heads, or has segment embeddings that do not
                tell the texts of a pair apart.
        """
        model = super().build_model(args, from_checkpoint)
        for name in self.heads:
            if not hasattr(model, "add_head"):
                raise UsageError(
                    f"{HEADS[name].thing.flag}: --arch {option(args, '_name')} has no head for "
                    "this; give one of this plug-in, for example --arch bert_a_masked_lm_base"
                )
            model.add_head(name)
        if self.relation is None:
            return model
        encoder = model.encoder.sentence_encoder
        if encoder.num_segments and not model.reads_pairs:
            raise UsageError(
                f"--num-segments {encoder.num_segments}: both texts of --pairs {self.relation} "
                "would be in the first segment; give --num-segments 2, and drop --segments single"
            )
        if not encoder.num_segments:
            logger.info(
                "--pairs %s: the model has no segment embeddings, so separators alone tell texts "
                "apart; BERT has --num-segments 2",
                self.relation,
            )
        return model

    def build_criterion(self, *args: Any, **kwargs: Any) -> FairseqCriterion:
        """Build the criterion.

        Raises:
            UsageError: the criterion does not train the heads that this task adds.
        """
        criterion = super().build_criterion(*args, **kwargs)
        if self.heads and not hasattr(criterion, "heads"):
            raise UsageError(
                f"--criterion {option(args[0], '_name')}: does not train the head "
                f"of {HEADS[self.heads[-1]].thing.flag}; give --criterion {TASK}"
            )
        return criterion


def _unpacked(settings: Options) -> Optional[str]:
    """Why the documents of a sample cannot be computed as if each were alone, or None."""
    if option(settings, "span_boundary_objective"):
        return (
            "the token before a span may be from another document; drop it, or "
            "--span-boundary-objective"
        )
    pairs = str(option(settings, "pairs") or NONE)
    return None if pairs == NONE else f"the two texts of --pairs {pairs} are read together; drop it"


#: Tells from the task's settings if samples are pairs, and why documents cannot be separated.
SAMPLES = Samples(lambda settings: str(option(settings, "pairs") or NONE) != NONE, _unpacked)


def _check(cfg: MaskedLMPairsConfig) -> None:
    refuse_unless_off(cfg, _UNSUPPORTED, f"--task {TASK} does not support it")
    check_masking(cfg)
    if cfg.pairs == NONE:
        # a checkpoint trained on pairs keeps these flags when it is validated on running text
        for name in ("unit", "separator_token", "mask_special_tokens"):
            value = option(cfg, name)
            if value not in (None, False):
                logger.warning("%s %s: has no effect with --pairs %s", flag_of(name), value, NONE)
    elif str(cfg.sample_break_mode) not in ("none", "complete_doc"):
        raise UsageError(
            f"--sample-break-mode {cfg.sample_break_mode}: has no effect with --pairs {cfg.pairs}, "
            "whose texts are whole lines of a document; drop it"
        )
    elif cfg.mask_special_tokens and cfg.masking != TOKENS:
        raise UsageError(f"--mask-special-tokens: needs --masking {TOKENS}, not {cfg.masking}")
