"""Attention of the packages linformer and reformer-pytorch."""

from importlib.metadata import version
from typing import Any, Dict, Tuple

from linformer import LinformerSelfAttention
from torch import Tensor

from golden import instantiate, normal

Made = Tuple[Dict[str, Any], Dict[str, Tensor]]
B, H, C, T, LONGEST, K = 2, 2, 16, 10, 16, 4


def linformer(name: str) -> Made:
    """Output (B, T, C) of sequences shorter than the projections, which its heads share."""
    described = {
        "source": f"linformer {version('linformer')}",
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


MAKERS = {"linformer": linformer}
