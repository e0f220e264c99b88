"""The flags of masking of ``--task masked_lm_pairs``, and the masks that they ask for."""

import logging
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Union

from fairseq.data import Dictionary, FairseqDataset
from fairseq.data.encoders import build_bpe
from fairseq.data.encoders.utils import get_whole_word_mask
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.masked_lm import MaskedLMConfig

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.training.tasks.masked_samples import TokenMasks
from fairseq_posenc.training.tasks.masking import GeometricSpans, UnitMasks, single_units
from fairseq_posenc.training.tasks.words import Words, marked_words, read_phrases, single_tokens

logger = logging.getLogger(__name__)

TOKENS, WORDS, SPANS, PHRASES = "tokens", "words", "spans", "phrases"
#: fairseq's flags of masking
_MASKING = (
    "seed",
    "mask_prob",
    "leave_unmasked_prob",
    "random_token_prob",
    "freq_weighted_replacement",
)
#: those of single tokens, with the values that switch them off
_OF_TOKENS = {"mask_multiple_length": 1, "mask_stdev": 0.0, "mask_whole_words": False}


@dataclass
class MaskingConfig(MaskedLMConfig):
    """Flags of masking, in addition to those of ``masked_lm``."""

    static_masks: int = field(
        default=0,
        metadata={
            "help": "number of different masks of a sample, which epochs take in turn (BERT: 10); "
            "0 for dynamic masking, a new one in every epoch"
        },
    )
    masking: ChoiceEnum((TOKENS, WORDS, SPANS, PHRASES)) = field(  # type: ignore[valid-type]
        default=TOKENS,
        metadata={
            "help": "what is masked together: tokens, each alone; words, all pieces of a word; "
            "spans, up to ten words as in SpanBERT; phrases, those of --phrases, and words"
        },
    )
    phrases: Optional[str] = field(
        default=None,
        metadata={"help": "text file with a phrase in each line, in the dictionary's symbols"},
    )
    span_boundary_objective: bool = field(
        default=False,
        metadata={
            "help": "also predict the tokens of a span from the two next to it (SpanBERT); needs "
            "--masking spans"
        },
    )


def check_masking(cfg: MaskingConfig) -> None:
    """Check the flags of masking.

    Raises:
        UsageError: one is out of range, or contradicts another.
    """
    if cfg.static_masks < 0:
        raise UsageError(
            f"--static-masks {cfg.static_masks}: must be at least 0, for dynamic masking"
        )
    for name, off in _OF_TOKENS.items():
        value = option(cfg, name, off)
        if cfg.masking != TOKENS and value != off:
            given = flag_of(name) if value is True else f"{flag_of(name)} {value}"
            raise UsageError(f"{given}: has no effect with --masking {cfg.masking}; drop it")
    if (cfg.masking == PHRASES) != bool(cfg.phrases):
        raise UsageError(
            f"--phrases {cfg.phrases}: has no effect with --masking {cfg.masking}; drop it"
            if cfg.phrases
            else "--masking phrases: needs --phrases FILE, with a phrase in each line"
        )
    if cfg.span_boundary_objective and cfg.masking != SPANS:
        raise UsageError(
            f"--span-boundary-objective: needs spans, not --masking {cfg.masking}; give "
            "--masking spans"
        )
    if cfg.masking != TOKENS:
        _check_shares(cfg)


def _check_shares(cfg: MaskingConfig) -> None:
    if not 0 < cfg.mask_prob < 1:
        raise UsageError(f"--mask-prob {cfg.mask_prob}: must be between 0 and 1, such as 0.15")
    shares = {name: getattr(cfg, name) for name in ("leave_unmasked_prob", "random_token_prob")}
    if min(shares.values()) < 0 or sum(shares.values()) > 1:
        given = " ".join(f"{flag_of(name)} {value}" for name, value in shares.items())
        raise UsageError(f"{given}: must be at least 0 each and at most 1 together")


def masks_of(
    cfg: MaskingConfig,
    samples: FairseqDataset,
    dictionary: Dictionary,
    mask_idx: int,
    bpe: Optional[Any],
) -> Union[TokenMasks, UnitMasks]:
    """The masks of samples.

    Args:
        cfg: the flags, checked.
        samples: one-dimensional.
        dictionary: the dictionary.
        mask_idx: the token that stands for masked ones.
        bpe: settings of ``--bpe``, or None.

    Raises:
        UsageError: the words or phrases cannot be found.
    """
    masking: Dict[str, Any] = {name: getattr(cfg, name) for name in _MASKING}
    masking["mask_idx"] = mask_idx
    if cfg.masking == TOKENS:
        masking.update({name: getattr(cfg, name) for name in _OF_TOKENS})
        masking["mask_whole_words"] = (
            _stock_words(bpe, dictionary) if cfg.mask_whole_words else None
        )
        return TokenMasks(samples, {**masking, "vocab": dictionary, "pad_idx": dictionary.pad()})
    words = _words(str(cfg.masking), dictionary, bpe)
    phrases = read_phrases(cfg.phrases, dictionary) if cfg.phrases else None
    choice = GeometricSpans() if cfg.masking == SPANS else single_units
    return UnitMasks(samples, dictionary, words, phrases, choice, **masking)


def _stock_words(bpe: Optional[Any], dictionary: Dictionary) -> Any:
    if bpe is None:
        raise UsageError(
            "--mask-whole-words: needs --bpe to find beginnings of words, for example gpt2; or "
            "give --masking words, which knows the marks of subwords in the dictionary"
        )
    return get_whole_word_mask(bpe, dictionary)


def _words(masking: str, dictionary: Dictionary, bpe: Optional[Any]) -> Words:
    """The words that the dictionary marks, or else those that ``--bpe`` knows."""
    words = marked_words(dictionary)
    if words is None and hasattr(build_bpe(bpe), "is_beginning_of_word"):
        begins = get_whole_word_mask(bpe, dictionary).bool().numpy()
        words = Words(begins, single_tokens(dictionary).goes_on)
    if words is None and masking == WORDS:
        raise UsageError(
            "--masking words: no symbols of the dictionary mark words (by \u2581, \u0120, ## or "
            "@@); give --bpe if it knows them, such as gpt2, or --masking tokens"
        )
    if words is None:
        logger.info("--masking %s: every token is a word", masking)
    return words or single_tokens(dictionary)
