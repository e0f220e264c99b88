"""Distances between queries and keys, and products with the vectors of distances.

A distance is key minus query, in tokens.  It is a difference of indices, not of positions.  The two
agree for real tokens, because padding is only at the ends and queries are the last T of S tokens;
all sentences of a batch can therefore share one table, whatever their padding.  For other
positions, :func:`by_pair` looks up the products.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import is_compiling


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

    Args:
        distances: in tokens.
        dim: even.
    """
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=distances.device)
    angles = distances.double().unsqueeze(1) * 10000.0 ** (-even / dim)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def toeplitz(values: Tensor, key_length: int) -> Tensor:
    """Spread one value per distance over all pairs of queries and keys.

    >>> toeplitz(torch.tensor([[-2, -1, 0, 1]]), 3)
    tensor([[[-1,  0,  1],
             [-2, -1,  0]]])

    Args:
        values: (H, S + T - 1), for the distances from -(S - 1) to T - 1.
        key_length: S.

    Returns:
        (H, T, S), dense.
    """
    # ONNX has no windows, and a compiled graph would keep the size of one
    if torch.jit.is_tracing() or is_compiling():
        return values[:, _columns(values.size(1) - key_length + 1, key_length, values.device)]
    # a window of S values for every query; the last one has the smallest distances
    return values.contiguous().unfold(-1, key_length, 1).flip(-2)


def _columns(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """Index (T, S) of the distance from each query to each key, counted from the least distance."""
    keys = torch.arange(key_length, device=device)
    queries = torch.arange(query_length, device=device).unsqueeze(1)
    return keys + (query_length - 1 - queries)


def within_reach(vectors: Tensor, query_length: int, key_length: int) -> Tensor:
    """Select the rows of the distances that occur from those of all distances -n … n.

    Args:
        vectors: (…, 2n + 1, D).
        query_length: T.
        key_length: S, at most n + 1.

    Returns:
        (…, S + T - 1, D), in the order that :func:`align` expects.
    """
    first = (vectors.size(-2) + 1) // 2 - key_length  # the last query is at the last key
    return vectors[..., first : first + key_length + query_length - 1, :]


def products(x: Tensor, vectors: Tensor) -> Tensor:
    """Products x·r of queries or keys with the vectors of distances, which all sentences share.

    Args:
        x: (B, H, T, D).
        vectors: r, (H, N, D).

    Returns:
        (B, H, T, N), stored as (H, B, T, N), which avoids a copy of r for every sentence.
    """
    batch, heads, length, _ = x.shape
    rows = x.transpose(0, 1).flatten(1, 2)  # (B, H, T, D) -> (H, B·T, D)
    result = torch.matmul(rows, vectors.transpose(-2, -1))
    return result.view(heads, batch, length, -1).transpose(0, 1)


def align(products: Tensor, key_length: int) -> Tensor:
    """Index products by key instead of by distance.

    Row t starts at distance -(S - T) - t, in column T - 1 - t: one column to the left of the row
    above.  A strided view with rows one element shorter does this without a copy (the shift in
    appendix B of Transformer-XL); on a CPU at 256 tokens it takes 0.8 of the time of gather,
    forward and backward.

    Args:
        products: (…, T, S + T - 1), by distance from -(S - 1) to T - 1.
        key_length: S.

    Returns:
        (…, T, S).
    """
    *leading, rows, columns = products.shape
    if rows == 1:
        return products
    if _in_graph():  # ONNX has no strides, and compilers choose others
        columns_of = _columns(rows, key_length, products.device)
        return products.gather(-1, columns_of.expand(*leading, -1, -1))
    products = products if products.stride(-1) == 1 else products.contiguous()
    *outer, between_rows, _ = products.stride()
    return products.as_strided(
        (*leading, rows, key_length),
        (*outer, between_rows - 1, 1),
        products.storage_offset() + rows - 1,
    )


def by_pair(products: Tensor, distances: Tensor) -> Tensor:
    """Index products by key instead of by distance, for any distances.

    >>> by_pair(torch.tensor([[[[7, 8, 9]]]]), torch.tensor([[[[1, -1]]]]))
    tensor([[[[9, 7]]]])

    Args:
        products: (B, H, T, 2n + 1), by distance from -n to n.
        distances: (1|B, 1, T, S), each from -n to n.

    Returns:
        (B, H, T, S).
    """
    columns = distances + products.size(-1) // 2
    return products.gather(-1, columns.expand(*products.shape[:2], -1, -1))


def _in_graph() -> bool:
    """True while a graph is traced or, where PyTorch can, compiled."""
    compiler: Any = getattr(torch, "compiler", None)  # PyTorch 2.1
    compiles = hasattr(compiler, "is_compiling") and compiler.is_compiling()
    return torch.jit.is_tracing() or compiles
