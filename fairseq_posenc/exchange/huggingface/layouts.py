"""How a tensor of a class of transformers holds several of ours, and in what order of channels."""

from typing import Callable, List, NamedTuple

import torch
from torch import Tensor

from fairseq_posenc.models.kinds import Parameters, Settings


class Layout(NamedTuple):
    """How a tensor holds several of ours; H is the number of heads."""

    join: Callable[[List[Tensor], int], Tensor]  # makes their tensor, given our tensors and H
    # makes our tensors, given their tensor, the number of our tensors, and H
    split: Callable[[Tensor, int, int], List[Tensor]]


def _join_by_head(parts: List[Tensor], heads: int) -> Tensor:
    by_head = [part.view(heads, -1, *part.shape[1:]) for part in parts]
    return torch.stack(by_head, dim=1).flatten(0, 2)


def _split_by_head(x: Tensor, number: int, heads: int) -> List[Tensor]:
    by_head = x.view(heads, number, -1, *x.shape[1:])
    return [part.flatten(0, 1).clone() for part in by_head.unbind(1)]


def _join_transposed(parts: List[Tensor], heads: int) -> Tensor:
    rows = torch.cat(parts)
    return rows.t() if rows.dim() == 2 else rows


def _split_transposed(x: Tensor, number: int, heads: int) -> List[Tensor]:
    rows = x.t() if x.dim() == 2 else x
    return [part.clone() for part in rows.chunk(number)]


def _root(rows: Tensor, heads: int) -> float:
    return float((len(rows) / heads) ** 0.5)


#: One of theirs is one of ours.
ALONE = Layout(lambda parts, heads: parts[0], lambda x, number, heads: [x])
#: Rows are ordered by head, and within a head by query, key and value: (H, 3, D, C).
BY_HEAD = Layout(_join_by_head, _split_by_head)
#: All queries, then all keys, then all values, (3·C, C).
IN_ROWS = Layout(
    lambda parts, heads: torch.cat(parts),
    lambda x, number, heads: [part.clone() for part in x.chunk(number)],
)
#: The same transposed, (C, 3·C): rows are inputs.
TRANSPOSED = Layout(_join_transposed, _split_transposed)
#: Queries of a class that does not divide products by √D.
UNSCALED = Layout(
    lambda parts, heads: parts[0] / _root(parts[0], heads),
    lambda x, number, heads: [x * _root(x, heads)],
)


def rotated_channels(settings: Settings, side: str) -> int:
    """The rotated channels of a head."""
    size = settings[f"{side}_embed_dim"] // settings[f"{side}_attention_heads"]
    return int(size * settings["rotary_fraction"])


def reordered(
    parameters: Parameters, pairing: str, head_dim: int, dim: int, values: bool = False
) -> Parameters:
    """A copy of our parameters whose queries and keys have other pairs of channels.

    Reordering the rows of queries and keys alike leaves their products unchanged.

    Args:
        parameters: ours, of one stack or of all.
        pairing: the new pairs, ``half`` or ``interleaved``.
        values: whether values are rotated, too; they take the columns of the output projection
            with them.
    """
    order = torch.tensor([*range(0, dim, 2), *range(1, dim, 2), *range(dim, head_dim)])
    if pairing == "interleaved":
        order = order.argsort()
    rows = ("q_proj.", "k_proj.", "q_norm.", "k_norm.", *(("v_proj.",) if values else ()))

    def reorder(x: Tensor) -> Tensor:
        return x.reshape(-1, head_dim, *x.shape[1:])[:, order].reshape(x.shape)

    def moved(name: str, x: Tensor) -> Tensor:
        if any(f"attn.{part}" in name for part in rows):
            return reorder(x)
        return reorder(x.t()).t() if values and name.endswith(".out_proj.weight") else x

    return {name: moved(name, x) for name, x in parameters.items()}


def paired(parameters: Parameters, settings: Settings, side: str, pairing: str) -> Parameters:
    """A copy of our parameters in the pairs of channels of a class, if they are rotated."""
    if settings["position_encoding"] != "rotary" or settings["rotary_pairing"] == pairing:
        return dict(parameters)
    size = settings[f"{side}_embed_dim"] // settings[f"{side}_attention_heads"]
    dim = rotated_channels(settings, side)
    return reordered(parameters, pairing, size, dim, settings["rotary_value"])
