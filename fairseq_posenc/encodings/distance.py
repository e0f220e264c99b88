"""Distances between queries and keys, and products with vectors of distances.

A distance is the index of a key minus the index of a query.  For real tokens, differences of index
and of position agree, because padding is only at the ends and queries are the last T of S tokens;
all sentences of a batch can therefore share one table, whatever their padding.  For assigned
positions, :func:`relative_products` looks up the product of each pair of query and key.
"""

from typing import Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import in_graph


def distances(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """Distance from each query to each key, (T, S), int64.

    >>> distances(2, 3, torch.device("cpu"))
    tensor([[-1,  0,  1],
            [-2, -1,  0]])
    """
    keys = torch.arange(key_length, device=device)
    return keys - keys[key_length - query_length :].unsqueeze(1)


def all_distances(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """All distances -n … n, int64, for some n ≥ S - 1.

    If T = S, n = S - 1.  In incremental decoding, where T < S, n + 1 is a power of two, so results
    computed from these distances can be cached for many steps.

    >>> all_distances(3, 3, torch.device("cpu")).tolist()
    [-2, -1, 0, 1, 2]
    >>> all_distances(1, 3, torch.device("cpu")).tolist()
    [-3, -2, -1, 0, 1, 2, 3]
    """
    reach = key_length if query_length == key_length else 1 << (key_length - 1).bit_length()
    return torch.arange(1 - reach, reach, device=device)


def sinusoids(distances: Tensor, dim: int) -> Tensor:
    """Alternating sin(d / 10000^{2t/dim}) and cos(…) of *distances* d (N), (N, dim), float64.

    >>> sinusoids(torch.tensor([0, 1]), 2)
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]], dtype=torch.float64)
    """
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=distances.device)
    angles = distances.double().unsqueeze(1) * 10000.0 ** (-even / dim)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def toeplitz(values: Tensor, key_length: int) -> Tensor:
    """Spread values of distances, (H, S + T - 1), over all pairs of queries and keys, (H, T, S).

    >>> toeplitz(torch.tensor([[-2, -1, 0, 1]]), 3)
    tensor([[[-1,  0,  1],
             [-2, -1,  0]]])

    The values are for the distances from -(S - 1) to T - 1; the result is dense.
    """
    if in_graph():  # ONNX has no unfold, and a compiled graph would fix its size
        return values[:, _columns(values.size(1) - key_length + 1, key_length, values.device)]
    # a window of S values for every query; the last query has the smallest distances
    return values.contiguous().unfold(-1, key_length, 1).flip(-2)


def _columns(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """Index (T, S) of the distance from each query to each key, 0 for the smallest distance."""
    keys = torch.arange(key_length, device=device)
    queries = torch.arange(query_length, device=device).unsqueeze(1)
    return keys + (query_length - 1 - queries)


def within_reach(vectors: Tensor, query_length: int, key_length: int) -> Tensor:
    """*vectors* (…, 2n + 1, D) for distances -n … n, cut to distances -(S - 1) … T - 1."""
    first = (vectors.size(-2) + 1) // 2 - key_length  # the last query is at the last key
    return vectors[..., first : first + key_length + query_length - 1, :]


def relative_products(
    x: Tensor, vectors: Tensor, key_length: int, distances: Optional[Tensor]
) -> Tensor:
    """Products x_i·r_d of queries with the vectors of their distances d to keys, (B, H, T, S).

    *x* is (B, H, T, D); *vectors* (H, 2n + 1, D) are r_d for d = -n … n; *distances* are
    (1|B, 1, T, S), or None if they are differences of indices.
    """
    if distances is None:
        vectors = within_reach(vectors, x.size(2), key_length)
    batch, heads, length, _ = x.shape
    # (B, H, T, D) -> (H, B·T, D), which avoids a copy of r for every sentence
    rows = x.transpose(0, 1).flatten(1, 2)
    products = torch.matmul(rows, vectors.transpose(-2, -1))
    products = products.view(heads, batch, length, -1).transpose(0, 1)
    if distances is None:
        return _aligned(products, key_length)
    columns = distances + products.size(-1) // 2
    return products.gather(-1, columns.expand(batch, heads, -1, -1))


def _aligned(products: Tensor, key_length: int) -> Tensor:
    """Index products by key instead of by distance: (…, T, S + T - 1) -> (…, T, S).

    Row t starts at distance -(S - T) - t, in column T - 1 - t: one column to the left of the row
    above.  A strided view with rows one element shorter does this without a copy (the shift in
    appendix B of Transformer-XL).  On a CPU at 256 tokens, forward and backward pass together take
    0.8 of the time with gather.
    """
    *leading, rows, columns = products.shape
    if rows == 1:
        return products
    if in_graph():  # ONNX has no strides, and compilers choose their own
        columns_of = _columns(rows, key_length, products.device)
        return products.gather(-1, columns_of.expand(*leading, -1, -1))
    products = products if products.stride(-1) == 1 else products.contiguous()
    *outer, between_rows, _ = products.stride()
    return products.as_strided(
        (*leading, rows, key_length),
        (*outer, between_rows - 1, 1),
        products.storage_offset() + rows - 1,
    )
