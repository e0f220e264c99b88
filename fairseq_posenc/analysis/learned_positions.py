"""Learned tables of positions, and the logits that single layers compute from positions alone."""

import re
from typing import Any, List, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.analysis.positions import Row, Side, load, rows_of
from fairseq_posenc.encodings.base import Content

_TABLE = "embed_positions.weight"
_FIRST = 2  # row of the first position: one after fairseq's index of padding
_TERMS = re.compile(r"layers\.(\d+)\..*position_terms\.")


class Table(NamedTuple):
    """A learned table of positions."""

    title: str
    similarities: Tensor  # (T, T)


def learned_table(side: Side, length: int) -> Optional[Table]:
    """Cosine similarities of the vectors in a learned table, less their mean.

    Args:
        side: the layers of an encoder or decoder.
        length: number of positions T.

    Returns:
        None without a table.
    """
    table = side.state.get(_TABLE)
    if table is None:
        return None
    vectors = table[_FIRST : _FIRST + length]
    vectors = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    return Table(f"{side.stack.side}: learned table", vectors @ vectors.t())


@torch.no_grad()
def layer_terms(side: Side, length: int) -> List[Row]:
    """Logits of the first and the last layer that are left of queries and keys of zero.

    For Transformer-XL, this is its term v·(r W_kR); other terms with content have none.

    Args:
        side: the layers of an encoder or decoder.
        length: number of positions T.
    """
    stack, encoding = side.stack, side.encoding
    terms: Any = encoding.build_content_bias()
    if terms is None:
        return []
    found = filter(None, map(_TERMS.match, side.state))
    prefixes = {int(match.group(1)): match.group() for match in found}
    zeros = torch.zeros(1, stack.num_heads, length, stack.head_dim)
    x = zeros.transpose(1, 2).flatten(2)
    positions = torch.arange(length).unsqueeze(0)
    rows: List[Row] = []
    for layer in dict.fromkeys((side.layers[0], side.layers[-1])):
        if layer in prefixes:  # NEZHA's has no parameters
            load(terms, prefixes[layer], side)
        content = Content(x, zeros, zeros, encoding.scale, positions, positions)
        (maps,) = terms(content, encoding.distance_vectors(length, length, zeros), {})
        if maps.any():
            title = f"{stack.side}, layer {layer + 1}: {encoding.name} without content"
            rows += rows_of(title, maps, stack)
    return rows
