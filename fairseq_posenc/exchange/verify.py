"""Comparing the outputs of a model before and after its conversion, in every format."""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.formats import ForeignModel, Logits
from fairseq_posenc.exchange.kinds import MASKED, PAD, Kind
from fairseq_posenc.flags.options import option

#: Largest difference of logits that float32 rounding explains.
TOLERANCE = 1e-4


def largest(ours: Tensor, theirs: Tensor, real: Optional[Tensor] = None) -> float:
    """The largest absolute difference of two outputs.

    Args:
        ours: one output.
        theirs: the other, of the same shape.
        real: True for the tokens (B, T) to compare, where the outputs are by token.
    """
    difference = (ours.double() - theirs.double()).abs()
    return float((difference if real is None else difference[real]).max())


def refuse_difference(difference: float, source: str, description: str) -> None:
    """Refuse a conversion that changed the outputs.

    Raises:
        UsageError: *difference* is above :data:`TOLERANCE` or NaN.
    """
    if not difference <= TOLERANCE:
        raise UsageError(
            f"{source}: the largest difference from {description} is {difference:.3g}, above "
            f"{TOLERANCE:g}; nothing was written"
        )


def sample(vocabulary: int, longest: int, num_segments: int) -> Tuple[Tensor, Tensor]:
    """Tokens and segments for the comparison: always the same, one full row and two padded.

    Args:
        vocabulary: V.
        longest: the maximum length of the model.
        num_segments: number of segments, 0 for none.

    Returns:
        tokens (3, T), starting with <s>, and segments (3, T).
    """
    generator = torch.Generator().manual_seed(1)
    length = min(longest, 140)  # long enough for every T5 bucket
    tokens = torch.randint(2, vocabulary, (3, length), generator=generator)
    segments = torch.randint(0, max(num_segments, 1), (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, kept in ((1, max(1, 2 * length // 3)), (2, max(1, length // 3))):
        tokens[row, kept:] = PAD
        segments[row, kept:] = 0
    return tokens, segments


def compare(
    model: nn.Module, kind: Kind, head: Optional[str], foreign: ForeignModel, source: str
) -> float:
    """Compare a converted model with the foreign one.

    Args:
        model: the model of this plug-in, loaded from its file, in evaluation mode.
        kind: what it is; the tokens of a language model are all in the first segment.
        head: name of the head to compare, None for the language-model head.
        foreign: the foreign model.
        source: the model being converted, for the error message.

    Returns:
        the largest absolute difference of logits, padding excluded.

    Raises:
        UsageError: it is above :data:`TOLERANCE` or NaN.
    """
    settings: Any = model.completed_settings
    num_segments = settings.num_segments if kind is MASKED else 0
    vocabulary = len(model.state_dict()[kind.embedding])
    tokens, segments = sample(vocabulary, option(settings, kind.length), num_segments)
    differences = []
    for name, logits in ((head, foreign.logits), *foreign.heads.items()):
        with torch.no_grad():
            ours, _ = model(tokens, **_inputs(kind, name, segments if num_segments else None))
        theirs = logits(tokens, segments)
        difference = largest(ours, theirs, tokens.ne(PAD) if theirs.dim() == 3 else None)
        if not difference <= TOLERANCE and kind is not MASKED:
            _check_causal(logits, tokens, segments, source, foreign.description)
        of_head = f" in head {name}" if name in foreign.heads else ""
        refuse_difference(difference, source, foreign.description + of_head)
        differences.append(difference)
    return max(differences)


def _check_causal(
    logits: Logits, tokens: Tensor, segments: Tensor, source: str, description: str
) -> None:
    """Refuse a reference in which the last token of a row changes the logits of its first."""
    others = torch.cat((tokens[:1, :-1], tokens[:1, 1:2]), dim=1)
    with torch.no_grad():
        one, other = (logits(x, segments[:1])[0, 0] for x in (tokens[:1], others))
    if not torch.allclose(one, other, equal_nan=True):
        raise UsageError(
            f"{source}: {description} reads later tokens, so there is nothing to compare with (5.9 "
            "to 5.17 do); install transformers 5.18 or newer; nothing was written"
        )


def _inputs(kind: Kind, head: Optional[str], segments: Optional[Tensor]) -> Dict[str, Any]:
    """The inputs of a model besides tokens."""
    if kind is not MASKED:
        return {}
    return {"segment_labels": segments, "classification_head_name": head}
