"""The logits of a folder, computed by transformers: the reference of a conversion."""

from typing import Any, Callable, Mapping, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.exchange.formats import ForeignModel
from fairseq_posenc.models.kinds import PAD


def reference(
    load: Callable[[], nn.Module],
    description: str,
    numbers: Mapping[str, Tensor],
    missing: int = 0,
    start: Optional[int] = None,
    segments: bool = False,
    labels: bool = False,
) -> ForeignModel:
    """The logits of a folder, given tokens and segments, or sources and targets, by our numbers.

    Args:
        load: loads the model, in evaluation mode.
        description: the implementation, for messages.
        numbers: by side, the folder's number of each symbol of our dictionary, (V,); symbols that
            it lacks have the highest.
        missing: how many it lacks; a translation model takes them for padding, others for zeros.
        start: the folder's number of the token that begins a translation; None for other models.
        segments: whether the model reads segments.
        labels: whether its logits are those of labels.
    """

    def logits(tokens: Tensor, other: Tensor) -> Tensor:
        model: Any = load()
        by_side = [*numbers.values()]
        first, last = by_side[0], by_side[-1]
        known = len(last) - missing
        inputs = {"attention_mask": tokens.ne(PAD).long()}
        if start is not None:
            first, last = (torch.where(x < known, x, x[PAD]) for x in (first, last))
            inputs["decoder_input_ids"] = last[other]
            inputs["decoder_input_ids"][:, 0] = start
        elif missing:
            _add_zeros(model.get_input_embeddings(), known, missing)
        if segments:
            inputs["token_type_ids"] = other
        with torch.no_grad():
            out = model(input_ids=first[tokens], **inputs).logits
        if labels:
            return out
        if start is None and missing:
            out = torch.cat((out[..., :known], out.new_zeros(*out.shape[:-1], missing)), dim=-1)
        return out[..., last]

    return ForeignModel(logits, description)


def _add_zeros(embedding: nn.Embedding, known: int, missing: int) -> None:
    """Give vectors of zeros to symbols that a class lacks, behind the *known* ones."""
    rows = embedding.weight.detach()[:known]
    rows = torch.cat((rows, rows.new_zeros(missing, rows.size(1))))
    embedding.weight = nn.Parameter(rows, requires_grad=False)
