"""Comparing the logits of a translation model before and after its conversion."""

from typing import Any, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.progress import say_on_terminal
from fairseq_posenc.exchange.formats import ForeignModel
from fairseq_posenc.exchange.verify import computed, largest, refuse_difference, sample
from fairseq_posenc.models.kinds import PAD

#: fairseq's numbers of ``</s>`` and of the first ordinary symbol.
_END, _FIRST = 2, 4


def pairs(sizes: Tuple[int, int], longest: int) -> Tuple[Tensor, Tensor]:
    """Sources (3, S) that end with ``</s>``, and targets (3, S) that begin with it, two padded.

    Args:
        sizes: V of the source and of the target.
        longest: the longest text of both.
    """
    texts = []
    for size in sizes:
        tokens, _ = sample(size, longest, 0)
        ordinary = tokens.remainder(max(size - _FIRST, 1)) + min(_FIRST, size - 1)
        texts.append(torch.where(tokens.eq(PAD), tokens, ordinary))
    source, target = texts
    ends = source.ne(PAD).sum(dim=1) - 1
    source[range(len(source)), ends] = _END
    target[:, 0] = _END
    return source, target


def compare_translation(model: nn.Module, foreign: ForeignModel, source: str) -> float:
    """Compare a converted translation model with the foreign one.

    Args:
        model: fairseq's model, in evaluation mode.
        foreign: the foreign model, given sources and targets.
        source: what was converted, for messages.

    Returns:
        the largest absolute difference of logits, padding excluded.

    Raises:
        UsageError: it is above 1e-4 or NaN.
    """
    say_on_terminal("comparing the two models")
    of: Any = model
    sizes = (len(of.encoder.embed_tokens.weight), len(of.decoder.embed_tokens.weight))
    texts, targets = pairs(sizes, min(of.max_positions()))
    with torch.no_grad():
        ours, _ = model(texts, texts.ne(PAD).sum(dim=1), targets)
    theirs = computed(foreign.logits, texts, targets, source, foreign.description)
    difference = largest(ours, theirs, targets.ne(PAD))
    refuse_difference(difference, source, foreign.description)
    return difference
