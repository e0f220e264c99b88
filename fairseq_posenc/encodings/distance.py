"""Distances between queries and keys, and how products with them find their place.

A distance is key minus query, in tokens.  It is counted by index in the sequence, not by position:
for two real tokens both are the same, since padding lies at the ends and queries are the last T of
S tokens, and so all sentences of a batch share one table, whatever their padding.
"""

import torch
from torch import Tensor


def distances(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """Distance from each query to each key, (T, S), int64."""
    keys = torch.arange(key_length, device=device)
    return keys - keys[key_length - query_length :].unsqueeze(1)


def all_distances(query_length: int, key_length: int, device: torch.device) -> Tensor:
    """-n … n, int64, with n ≥ S - 1.

    In training n = S - 1.  In incremental decoding, where T < S, it grows by doubling, so that what
    is made of these distances serves many steps.
    """
    reach = key_length if query_length == key_length else 1 << (key_length - 1).bit_length()
    return torch.arange(1 - reach, reach, device=device)


def within_reach(vectors: Tensor, query_length: int, key_length: int) -> Tensor:
    """Rows for the distances -(S - 1) … T - 1, of rows for all distances -n … n.

    Args:
        vectors: (…, 2n + 1, D).
        query_length: T.
        key_length: S, at most n + 1.

    Returns:
        (…, S + T - 1, D), which :func:`align` takes the products with.
    """
    reach = (vectors.size(-2) + 1) // 2
    return vectors[..., reach - key_length : reach - 1 + query_length, :]


def products(x: Tensor, vectors: Tensor) -> Tensor:
    """x·r of queries or keys and the vectors of distances, which all sentences share.

    Args:
        x: (B, H, T, D).
        vectors: r, (H, N, D).

    Returns:
        (B, H, T, N), laid out as (H, B, T, N): one product a head, and no copy of r a sentence.
    """
    batch, heads, length, _ = x.shape
    rows = x.transpose(0, 1).flatten(1, 2)  # (B, H, T, D) -> (H, B·T, D)
    found = torch.matmul(rows, vectors.transpose(-2, -1))
    return found.view(heads, batch, length, -1).transpose(0, 1)


def align(products: Tensor, key_length: int) -> Tensor:
    """Sort products by key instead of by distance.

    Row t starts at distance -(S - T) - t: at column T - 1 - t, one to the left of the row above.  A
    view with rows shorter by one does that without a copy (the shift of Transformer-XL's appendix
    B); on a CPU at 256 tokens it takes 0.8 of the time of gather, forward and backward.

    Args:
        products: (…, T, S + T - 1), by distance from -(S - 1) to T - 1.
        key_length: S.

    Returns:
        (…, T, S).
    """
    *leading, rows, columns = products.shape
    if rows == 1:
        return products
    products = products if products.stride(-1) == 1 else products.contiguous()
    *outer, between_rows, _ = products.stride()
    return products.as_strided(
        (*leading, rows, key_length),
        (*outer, between_rows - 1, 1),
        products.storage_offset() + rows - 1,
    )
