"""Comparing what two sides of a conversion compute for the same tokens."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.convert.base import Reference
from fairseq_posenc.convert.native import PAD

#: Largest difference of logits that float32 explains.
TOLERANCE = 1e-4


def sample(vocabulary: int, longest: int, num_segments: int) -> Tuple[Tensor, Tensor]:
    """Tokens and segments to compare with: always the same, one row full and two padded.

    Args:
        vocabulary: V.
        longest: positions that the model has.
        num_segments: rows of its table of segments, 0 for none.

    Returns:
        tokens (3, T), starting with <s>, and segments (3, T).
    """
    generator = torch.Generator().manual_seed(1)
    length = min(longest, 140)  # every bucket of T5 distances occurs
    tokens = torch.randint(2, vocabulary, (3, length), generator=generator)
    segments = torch.randint(0, max(num_segments, 1), (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, kept in ((1, max(1, 2 * length // 3)), (2, max(1, length // 3))):
        tokens[row, kept:] = PAD
        segments[row, kept:] = 0
    return tokens, segments


def largest_difference(model: nn.Module, head: Optional[str], reference: Reference) -> float:
    """Largest absolute difference of logits where there are tokens, NaN if any is NaN.

    Args:
        model: ours, loaded from its file, to evaluate.
        head: name of the head to compare, None for the language-model head.
        reference: the foreign side.
    """
    args: Any = model.args
    vocabulary = len(model.encoder.sentence_encoder.embed_tokens.weight)  # type: ignore
    tokens, segments = sample(vocabulary, args.max_positions, args.num_segments)
    with torch.no_grad():
        ours, _ = model(
            tokens,
            segment_labels=segments if args.num_segments else None,
            classification_head_name=head,
        )
    difference = (ours.double() - reference(tokens, segments).double()).abs()
    if difference.dim() == 3:  # logits of every token
        difference = difference[tokens.ne(PAD)]
    return float(difference.max())
