"""Samples with masks, dynamic or static (RoBERTa section 4.1), and the flags of masking."""

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, MaskTokensDataset, data_utils
from fairseq.data.encoders import build_bpe
from fairseq.data.encoders.utils import get_whole_word_mask
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.masked_lm import MaskedLMConfig
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.settings import check_settings, refuse_unless_off
from fairseq_posenc.packs.pretraining.masking import (
    GeometricSpans,
    UnitMasks,
    Words,
    marked_words,
    read_phrases,
    single_tokens,
    single_units,
)
from fairseq_posenc.training.base import SizedDataset

logger = logging.getLogger(__name__)

TOKENS, WORDS, SPANS, PHRASES = "tokens", "words", "spans", "phrases"
#: fairseq's flags of masking.
_MASKING = (
    "seed",
    "mask_prob",
    "leave_unmasked_prob",
    "random_token_prob",
    "freq_weighted_replacement",
)
#: fairseq's flags that apply only to masks of single tokens, with the values that switch them off.
_OF_TOKENS = {"mask_multiple_length": 1, "mask_stdev": 0.0, "mask_whole_words": False}


@dataclass
class MaskingConfig(MaskedLMConfig):
    """Flags of masking, in addition to those of ``masked_lm``."""

    static_masks: int = field(
        default=0,
        metadata={
            "help": "number of fixed masks of a sample, which epochs use in turn (BERT: 10); 0 for "
            "dynamic masking, a new mask in every epoch",
            "at_least": 0,
        },
    )
    masking: ChoiceEnum((TOKENS, WORDS, SPANS, PHRASES)) = field(  # type: ignore[valid-type]
        default=TOKENS,
        metadata={
            "help": "units to mask: tokens, single tokens; words, whole words; spans, up to ten "
            "words as in SpanBERT; phrases, the phrases of --phrases and words outside of them"
        },
    )
    phrases: Optional[str] = field(
        default=None,
        metadata={"help": "text file with one phrase per line, in symbols of the dictionary"},
    )
    span_boundary_objective: bool = field(
        default=False,
        metadata={
            "help": "also predict the tokens of a span from the tokens around it (SpanBERT); needs "
            "--masking spans"
        },
    )


def check_masking(cfg: MaskingConfig) -> None:
    """Refuse flags of masking that are out of range, or contradict each other."""
    check_settings(cfg, dataclasses.fields(MaskingConfig))
    if cfg.masking != TOKENS:
        refuse_unless_off(cfg, _OF_TOKENS, f"has no effect with --masking {cfg.masking}")
    if (cfg.masking == PHRASES) != bool(cfg.phrases):
        raise UsageError(
            f"--phrases {cfg.phrases}: has no effect with --masking {cfg.masking}; drop it"
            if cfg.phrases
            else "--masking phrases: needs --phrases FILE, with one phrase per line"
        )
    if cfg.span_boundary_objective and cfg.masking != SPANS:
        raise UsageError(
            f"--span-boundary-objective: needs spans, not --masking {cfg.masking}; give "
            "--masking spans"
        )
    if cfg.masking == TOKENS:
        return
    if not 0 < cfg.mask_prob < 1:
        raise UsageError(f"--mask-prob {cfg.mask_prob}: must be between 0 and 1, such as 0.15")
    shares = {name: getattr(cfg, name) for name in ("leave_unmasked_prob", "random_token_prob")}
    if min(shares.values()) < 0 or sum(shares.values()) > 1:
        flags = " ".join(f"{flag_of(name)} {value}" for name, value in shares.items())
        raise UsageError(f"{flags}: must be at least 0 each and at most 1 together")


class TokenMasks:
    """Masks single tokens, by fairseq's ``MaskTokensDataset``.

    Each token except those in *spared* has the same probability of being masked.
    """

    def __init__(
        self, samples: FairseqDataset, masking: Dict[str, Any], spared: Sequence[int]
    ) -> None:
        self.samples, self.padding, self.spared = samples, masking["pad_idx"], np.array(spared)
        # apply_mask would return cached samples of the previous epoch
        self.source = MaskTokensDataset(samples, **masking, return_masked_tokens=False)
        self.target = MaskTokensDataset(samples, **masking, return_masked_tokens=True)

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of an epoch."""
        self.source.set_epoch(epoch)
        self.target.set_epoch(epoch)

    def __getitem__(self, index: int) -> Tuple[Tensor, Tensor]:
        """The masked sample (T,), and the tokens to predict (T,), padding elsewhere."""
        tokens = self.samples[index]
        kept = torch.from_numpy(np.isin(tokens.numpy(), self.spared))
        source = torch.where(kept, tokens, self.source[index])
        return source, self.target[index].masked_fill(kept, self.padding)


class MaskedSamples(SizedDataset):
    """Samples of running text or pairs, with masks.

    Masks depend only on the seed, the epoch and the index of the sample.  *samples* have
    ``relations`` (N,) if they are pairs.  Epochs use *static* masks in turn, or new masks if
    *static* is 0; *shards* epochs read the data once.
    """

    def __init__(
        self,
        samples: FairseqDataset,
        masks: Union[TokenMasks, UnitMasks],
        padding: int,
        seed: int,
        static: int,
        shards: int,
    ) -> None:
        self.samples, self.masks, self.static, self.shards = samples, masks, static, shards
        self.padding, self.seed = padding, seed

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False, so that data-loading workers are told the new epoch, on which masks depend."""
        return False

    def set_epoch(self, epoch: int, **unused: object) -> None:
        """Choose the masks of an epoch and, if samples are pairs, their texts."""
        if self.static:
            epoch = (epoch - 1) // self.shards % self.static + 1
        self.masks.set_epoch(epoch)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        source, target = self.masks[index]
        sample = {"id": index, "source": source, "target": target}
        if hasattr(self.samples, "relations"):
            sample["relation"] = int(self.samples.relations[index])
        return sample

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch as in fairseq's ``masked_lm``, with ``relation`` (B,) if there are pairs."""
        if not samples:
            return {}
        lengths = torch.tensor([len(sample["source"]) for sample in samples])
        tokens, target = (
            data_utils.collate_tokens([sample[key] for sample in samples], self.padding)
            for key in ("source", "target")
        )
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": target,
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
        }
        if "relation" in samples[0]:
            batch["relation"] = torch.tensor([sample["relation"] for sample in samples])
        return batch

    @property
    def sizes(self) -> np.ndarray:  # type: ignore[override]
        """Tokens of each sample (N,), which may differ between epochs."""
        return self.samples.sizes

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Numbers of tokens of the samples *indices*."""
        return self.sizes[indices]

    def ordered_indices(self) -> np.ndarray:
        """Indices of samples by length; the seed shuffles samples of equal length."""
        with data_utils.numpy_seed(self.seed):
            shuffled = np.random.permutation(len(self))
        return np.lexsort([shuffled, self.sizes])

    @property
    def supports_prefetch(self) -> bool:
        """Whether the samples have to be fetched in advance."""
        return getattr(self.samples, "supports_prefetch", False)

    def prefetch(self, indices: Collection[int]) -> None:
        """Fetch samples in advance."""
        self.samples.prefetch(indices)


def masks_of(
    cfg: MaskingConfig,
    samples: FairseqDataset,
    dictionary: Dictionary,
    mask_idx: int,
    bpe: Optional[Any],
    special: Sequence[int],
) -> Union[TokenMasks, UnitMasks]:
    """The masks that ``--masking`` selects for *samples*.

    *special* tokens are never masked; nor are ``<s>`` and ``</s>`` with words, spans or phrases.
    *bpe* are the settings of ``--bpe``, or None.

    Raises:
        UsageError: the words or phrases cannot be found.
    """
    if cfg.masking == TOKENS:
        masking = {name: getattr(cfg, name) for name in (*_MASKING, *_OF_TOKENS)}
        if cfg.mask_whole_words and bpe is None:
            raise UsageError(
                "--mask-whole-words: needs --bpe to find beginnings of words, for example gpt2; or "
                "give --masking words, which finds words by marks in the dictionary's symbols"
            )
        stock_words = get_whole_word_mask(bpe, dictionary) if cfg.mask_whole_words else None
        masking.update(mask_whole_words=stock_words, mask_idx=mask_idx)
        masking.update(vocab=dictionary, pad_idx=dictionary.pad())
        return TokenMasks(samples, masking, special)
    words = _words(str(cfg.masking), dictionary, bpe)
    phrases = read_phrases(cfg.phrases, dictionary) if cfg.phrases else None
    choice = GeometricSpans() if cfg.masking == SPANS else single_units
    special = [*special, dictionary.bos(), dictionary.pad(), dictionary.eos()]
    return UnitMasks(samples, dictionary, words, phrases, choice, mask_idx, cfg, special)


def _words(masking: str, dictionary: Dictionary, bpe: Optional[Any]) -> Words:
    """Find words by marks in the dictionary, else by ``--bpe``; else every token is a word."""
    words = marked_words(dictionary)
    if words is None and hasattr(build_bpe(bpe), "is_beginning_of_word"):
        begins = get_whole_word_mask(bpe, dictionary).bool().numpy()
        words = Words(begins, single_tokens(dictionary).goes_on)
    if words is None and masking == WORDS:
        raise UsageError(
            "--masking words: no symbols of the dictionary have marks of words (\u2581, \u0120, ## "
            "or @@); give a --bpe that finds words, such as gpt2, or --masking tokens"
        )
    if words is None:
        logger.info("--masking %s: every token counts as a word", masking)
    return words or single_tokens(dictionary)
