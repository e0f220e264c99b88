"""Where the parameters of a model are in a class of transformers, in both directions.

Each :class:`Joint` says how one tensor of the class holds one or several of ours, so that writing
and reading follow the same description.
"""

from types import MappingProxyType
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.exchange.config import Config

#: Modules of a layer, ours.
Q, K, V, OUT = (f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
FC1, GATE, FC2 = "fc1", "fc_gate", "fc2"
NORM_1, NORM_2 = "self_attn_layer_norm", "final_layer_norm"


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


class Joint(NamedTuple):
    """A module of theirs, and those of ours that it holds."""

    theirs: str
    ours: Tuple[str, ...]
    layout: Layout = ALONE


class Names(NamedTuple):
    """The names in a class of transformers.

    Args:
        layer: start of the names in layer number ``{}``.
        modules: the modules of a layer.
        embedding: the embedding of tokens.
        norms: the norms outside of layers, by our names.
        table: the table of positions, or nothing.
        output: the output projection, if it is not the embedding.
        biases: by the start of a module's name, the entry of config.json that says whether it has a
            bias, with its usual value, or None if it never has one; other modules always have.
    """

    layer: str
    modules: Tuple[Joint, ...]
    embedding: str
    norms: Mapping[str, str]
    table: str = ""
    output: str = "lm_head.weight"
    biases: Mapping[str, Optional[Tuple[str, bool]]] = MappingProxyType({})

    def biased(self, module: str, config: Config) -> bool:
        """Whether a module of theirs has a bias by config.json."""
        for start, entry in self.biases.items():
            if module.startswith(start):
                return entry is not None and config.flag(*entry)
        return True
