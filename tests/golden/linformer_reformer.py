"""Attention outputs of the packages linformer and reformer-pytorch."""

from unittest import mock

import torch
from linformer import LinformerSelfAttention
from reformer_pytorch import reformer_pytorch

from golden import Made, instantiate, normal, source

B, H, C, T, LONGEST, K = 2, 2, 16, 10, 16, 4


def linformer(name: str) -> Made:
    """Output (B, T, C) for sequences shorter than LONGEST; heads share the projections."""
    described = {
        "source": source("linformer"),
        "config": {"heads": H, "size": K, "length": LONGEST},
        "parameters": {
            "to_q.weight": normal(C, C),
            "to_k.weight": normal(C, C),
            "to_v.weight": normal(C, C),
            "proj_k": normal(LONGEST, K),
            "proj_v": normal(LONGEST, K),
            "to_out.weight": normal(C, C),
            "to_out.bias": normal(C),
        },
        "inputs": {"x": normal(B, T, C, std=0.5)},
    }
    reference = instantiate(name, described)
    layer = LinformerSelfAttention(C, LONGEST, k=K, heads=H)
    layer.load_state_dict(reference["state_dict"])
    return described, {"out": layer(reference["inputs"]["x"])}


def reformer(name: str) -> Made:
    """Output (B, T, D) of causal attention among tokens of the same bucket, in one or more rounds.

    The package sorts tokens by bucket and cuts the sorted sequence into chunks.  With two chunks,
    each query of a causal attention sees all earlier tokens of its bucket.  The package's logit of
    a token with itself is -5e4, which would reduce other logits to three digits; here it is -50.
    """
    length, size, rounds = 24, 8, 3
    buckets = 2
    described = {
        "source": source("reformer-pytorch"),
        "config": {"buckets": buckets, "rounds": rounds},
        "inputs": {
            "qk": normal(B * H, length, size),
            "v": normal(B * H, length, size),
            "rotations": normal(1, size, rounds, buckets // 2),
        },
    }
    inputs = instantiate(name, described)["inputs"]
    layer = reformer_pytorch.LSHAttention(
        bucket_size=length // buckets,
        n_hashes=rounds,
        causal=True,
        allow_duplicate_attention=False,
        attend_across_buckets=False,
    )
    rotations = mock.patch("torch.randn", lambda *_, **__: inputs["rotations"])
    with rotations, mock.patch.object(reformer_pytorch, "TOKEN_SELF_ATTN_VALUE", -50.0):
        out, _, found = layer(inputs["qk"], inputs["v"])
    offsets = torch.arange(rounds).repeat_interleave(length) * buckets
    return described, {"out": out, "buckets": (found - offsets).view(B * H, rounds, length)}


MAKERS = {"reformer": reformer, "linformer": linformer}
