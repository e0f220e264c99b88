"""Comparison of the outputs of a model before and after its conversion, for every format."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import say_on_terminal
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.checkpoints.settings import architecture
from fairseq_posenc.exchange.formats import ForeignModel, Logits
from fairseq_posenc.flags.options import option
from fairseq_posenc.models.kinds import CAUSAL, END, MASKED, PAD, TRANSLATION, Kind, kind_of

#: The largest difference between logits that float32 rounding can explain.
TOLERANCE = 1e-4
#: The number of the first ordinary symbol in fairseq's dictionaries.
_FIRST = 4


def largest(ours: Tensor, theirs: Tensor, real: Optional[Tensor] = None) -> float:
    """The largest absolute difference between two outputs.

    Args:
        real: True for the tokens (B, T) to compare; None compares the whole outputs.
    """
    difference = (ours.double() - theirs.double()).abs()
    return float((difference if real is None else difference[real]).max())


def refuse_difference(difference: float, source: str, description: str) -> None:
    """Refuse a conversion if the *difference* of outputs is NaN or above :data:`TOLERANCE`."""
    if not difference <= TOLERANCE:
        raise UsageError(
            f"{source}: the largest difference from {description} is {difference:.3g}, above "
            f"{TOLERANCE:g}; nothing was written"
        )


def sample(vocabulary: int, longest: int, num_segments: int) -> Tuple[Tensor, Tensor]:
    """Fixed random tokens (3, T) that begin with <s>, and segments (3, T); two rows are padded."""
    generator = torch.Generator().manual_seed(1)
    length = min(longest, 140)  # long enough for every T5 bucket
    tokens = torch.randint(2, vocabulary, (3, length), generator=generator)
    segments = torch.randint(0, max(num_segments, 1), (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, kept in ((1, max(1, 2 * length // 3)), (2, max(1, length // 3))):
        tokens[row, kept:] = PAD
        segments[row, kept:] = 0
    return tokens, segments


def pairs(sizes: Tuple[int, int], longest: int) -> Tuple[Tensor, Tensor]:
    """Sources (3, S) ending with ``</s>`` and targets (3, S) beginning with it; 2 rows are padded.

    *sizes* are the sizes of the source vocabulary and of the target vocabulary.
    """
    texts = []
    for size in sizes:
        tokens, _ = sample(size, longest, 0)
        ordinary = tokens.remainder(max(size - _FIRST, 1)) + min(_FIRST, size - 1)
        texts.append(torch.where(tokens.eq(PAD), tokens, ordinary))
    source, target = texts
    ends = source.ne(PAD).sum(dim=1) - 1
    source[range(len(source)), ends] = END
    target[:, 0] = END
    return source, target


def compare(
    model: nn.Module, kind: Kind, head: Optional[str], foreign: Optional[ForeignModel], source: str
) -> float:
    """Compare a converted model with the foreign one.

    Args:
        model: the converted model, loaded from its file, in evaluation mode.
        kind: its kind; only inputs of masked language models have several segments.

    Returns:
        the largest absolute difference between logits, padding excluded.

    Raises:
        UsageError: the difference is above :data:`TOLERANCE` or NaN, or *foreign* is None.
    """
    if foreign is None:
        raise UsageError(f"{source}: --verify: nothing can run the foreign model; drop the flag")
    say_on_terminal("comparing the two models")
    tokens, other, inputs = _inputs(model, kind)
    real = (other if kind is TRANSLATION else tokens).ne(PAD)
    differences = []
    for name, logits in ((head, foreign.logits), *foreign.heads.items()):
        of_head = {"classification_head_name": name} if kind is MASKED else {}
        with torch.no_grad():
            ours, _ = model(tokens, **inputs, **of_head)
        try:
            theirs = logits(tokens, other)
        except UsageError:
            raise
        except Exception as error:  # versions of transformers differ in what they raise
            raise UsageError(
                f"{source}: {foreign.description} failed ({error}); nothing was written"
            ) from error
        difference = largest(ours, theirs, real if theirs.dim() == 3 else None)
        if not difference <= TOLERANCE and kind is CAUSAL:
            _check_causal(logits, tokens, other, source, foreign.description)
        described = f" in head {name}" if name in foreign.heads else ""
        refuse_difference(difference, source, foreign.description + described)
        differences.append(difference)
    return max(differences)


def _inputs(model: Any, kind: Kind) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
    """The two inputs of the reference, and our model's keyword arguments after the tokens."""
    if kind is TRANSLATION:
        sizes = (len(model.encoder.embed_tokens.weight), len(model.decoder.embed_tokens.weight))
        texts, targets = pairs(sizes, min(model.max_positions()))
        lengths = texts.ne(PAD).sum(dim=1)
        return texts, targets, {"src_lengths": lengths, "prev_output_tokens": targets}
    settings: Any = getattr(model, "completed_settings", None) or model.args  # fairseq's models
    num_segments = option(settings, "num_segments", 0) if kind is MASKED else 0
    vocabulary = len(model.get_parameter(kind.embedding))
    tokens, segments = sample(vocabulary, option(settings, kind.length), num_segments)
    return tokens, segments, {"segment_labels": segments} if num_segments else {}


def _check_causal(
    logits: Logits, tokens: Tensor, segments: Tensor, source: str, description: str
) -> None:
    """Refuse a reference if the last token of a row changes the logits of the first token."""
    others = torch.cat((tokens[:1, :-1], tokens[:1, :1]), dim=1)  # the last token is now <s>
    with torch.no_grad():
        one, other = (logits(x, segments[:1])[0, 0] for x in (tokens[:1], others))
    if not torch.allclose(one, other, equal_nan=True):
        raise UsageError(
            f"{source}: {description} attends to later tokens, as versions 5.9 to 5.17 do, so it "
            "cannot serve as the reference; install transformers 5.18 or newer; nothing was written"
        )


@torch.no_grad()
def refuse_overflow(loaded: Loaded) -> None:
    """Refuse a model with finite weights whose outputs for ordinary tokens are infinite or NaN."""
    kind = kind_of(architecture(loaded.settings))
    if kind is None:  # a model that no format supports
        return
    tokens, _, inputs = _inputs(loaded.model, kind)
    first = {name: x[:1] for name, x in inputs.items()}  # the first row has no padding
    heads = [getattr(loaded.model, f"{of}_heads", {}) for of in ("classification", "token")]
    named: List[Dict[str, Any]] = [{"classification_head_name": n} for of in heads for n in of]
    outputs = [loaded.model(tokens[:1], **first, **head)[0] for head in ({}, *named)]
    if not all(bool(torch.isfinite(logits).all()) for logits in outputs):
        raise UsageError(
            f"{loaded.path}: its outputs are infinite or not a number, though its weights are "
            "finite, so the training diverged; give an earlier checkpoint"
        )
