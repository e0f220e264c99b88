"""Token embeddings of a language model: one table, adaptive, or made of characters.

Adaptive: Baevski and Auli, arXiv 1809.10853; rare words have smaller embeddings, which an adaptive
softmax (Grave et al., arXiv 1609.04309) can share.  The modules are fairseq's.
"""

import ast
from typing import Any, List, Optional

from fairseq.data import Dictionary
from fairseq.models.transformer import Embedding
from fairseq.modules import AdaptiveInput, CharacterTokenEmbedder
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import Options, option

_CUTOFFS = ("adaptive_input_cutoff", "adaptive_softmax_cutoff")


def check_embedding(cfg: Options) -> None:
    """Refuse contradictory flags of the embedding and the softmax."""
    cutoffs = {name: _cutoff(cfg, name) for name in _CUTOFFS}
    if cfg.adaptive_input and cutoffs["adaptive_input_cutoff"] is None:
        raise UsageError("--adaptive-input: give --adaptive-input-cutoff, for example 20000,60000")
    if cfg.tie_adaptive_weights:
        if not cfg.adaptive_input:
            raise UsageError("--tie-adaptive-weights: also give --adaptive-input")
        for one, other in (
            _CUTOFFS,
            ("adaptive_input_factor", "adaptive_softmax_factor"),
            ("decoder_input_dim", "decoder_output_dim"),
        ):
            if option(cfg, one) != option(cfg, other):
                raise UsageError(
                    f"--tie-adaptive-weights: {flag_of(one)} {option(cfg, one)} and "
                    f"{flag_of(other)} {option(cfg, other)} have to be the same"
                )
    if cfg.share_decoder_input_output_embed and cutoffs["adaptive_softmax_cutoff"] is None:
        _check_shared(cfg)


def _check_shared(cfg: Options) -> None:
    for name in ("adaptive_input", "character_embeddings"):
        if option(cfg, name):
            raise UsageError(
                f"--share-decoder-input-output-embed: {flag_of(name)} has no table that an output "
                "projection could share; drop one of the two"
            )
    if cfg.decoder_input_dim != cfg.decoder_output_dim:
        raise UsageError(
            f"--share-decoder-input-output-embed: --decoder-input-dim {cfg.decoder_input_dim} and "
            f"--decoder-output-dim {cfg.decoder_output_dim} have to be the same"
        )


def build_embedding(cfg: Options, dictionary: Dictionary) -> nn.Module:
    """The token embedding, from token indices (B, T) to (B, T, E)."""
    words = len(dictionary)
    for name in _CUTOFFS:
        cutoff = _cutoff(cfg, name) or [0]
        if cutoff[-1] > words:
            raise UsageError(
                f"{flag_of(name)} {option(cfg, name)}: the dictionary has {words} words; give at "
                "most that number"
            )
    if cfg.character_embeddings:
        return CharacterTokenEmbedder(
            dictionary,
            _filters(cfg.character_filters),
            cfg.character_embedding_dim,
            cfg.decoder_embed_dim,
            cfg.char_embedder_highway_layers,
        )
    if cfg.adaptive_input:
        return AdaptiveInput(
            words,
            dictionary.pad(),
            cfg.decoder_input_dim,
            cfg.adaptive_input_factor,
            cfg.decoder_embed_dim,
            _cutoff(cfg, "adaptive_input_cutoff"),
            cfg.quant_noise_pq,
            cfg.quant_noise_pq_block_size,
        )
    return Embedding(words, cfg.decoder_input_dim, dictionary.pad())


def _cutoff(cfg: Options, name: str) -> Optional[List[int]]:
    """The numbers in the value of a flag, such as 20000,60000; None if the flag is not set."""
    text = option(cfg, name)
    if text is None:
        return None
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 1:
        raise UsageError(f"{flag_of(name)} {text}: must be increasing numbers, such as 20000,60000")
    return numbers


def _filters(text: str) -> Any:
    try:
        return [(int(width), int(count)) for width, count in ast.literal_eval(text)]
    except (ValueError, TypeError, SyntaxError) as error:
        raise UsageError(
            f"--character-filters {text}: must be pairs of width and count, such as [(1, 64)]"
        ) from error
