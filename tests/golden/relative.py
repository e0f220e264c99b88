"""Attention of Shaw et al. and of Transformer-XL, computed by fairseq2.

fairseq2 itself can only be imported with the PyTorch that it was built for.  The modules needed
here work with any PyTorch, so they are imported without the ``__init__`` files of their packages.
"""

import sys
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any, Dict, Tuple

from torch import Tensor

from golden import Made, instantiate, normal, source


def _without_init(name: str, path: Any = None) -> Any:
    """Register the package *name* without running its ``__init__``; returns its search path."""
    module = ModuleType(name)
    module.__path__ = list(PathFinder.find_spec(name, path).submodule_search_locations)
    sys.modules[name] = module
    return module.__path__


_folders = _without_init("fairseq2")
_folders = _without_init("fairseq2.models", _folders)
_folders = _without_init("fairseq2.models.transformer", _folders)
_without_init("fairseq2.models.transformer.sdpa", _folders)

attention_bias = import_module("fairseq2.models.transformer.attention_bias")
relative = import_module("fairseq2.models.transformer.sdpa.relative")
shaw = import_module("fairseq2.models.transformer.sdpa.shaw")
BatchLayout = import_module("fairseq2.nn").BatchLayout

B, S, H, D = 3, 11, 2, 8
LENGTHS = [11, 7, 5]
CLIP = 4


def _inputs(queries: int) -> Dict[str, Any]:
    return {
        "source": source("fairseq2", "models/transformer/sdpa"),
        "config": {"heads": H, "head_dim": D, "layout": "(B, T, H, D)"},
        "inputs": {"q": normal(B, queries, H, D), "k": normal(B, S, H, D), "v": normal(B, S, H, D)},
        "integers": {"key_lens": LENGTHS},
    }


def _bias(case: str) -> Any:
    causal = "causal" in case
    return attention_bias.CausalAttentionBias() if causal else attention_bias.IdentityBias()


def _attend(layer: Any, case: str, q: Tensor, k: Tensor, v: Tensor) -> Dict[str, Tensor]:
    lengths = LENGTHS if "padded" in case else None
    layouts = (BatchLayout(x.shape[:2], lengths) for x in (q, k))
    cache = attention_bias.AttentionBiasCache()
    out, weights = layer(q, next(layouts), k, next(layouts), v, cache, needs_weights=True)
    return {case: out, case + "_weights": weights}


def shaw_values(queries: int, cases: Tuple[str, ...], name: str) -> Made:
    tables = {f"rel_{side}_embed.weight": normal(2 * CLIP + 1, D, std=0.5) for side in "kv"}
    described = {**_inputs(queries), "parameters": tables}
    described["config"]["max_distance"] = CLIP
    reference = instantiate(name, described)
    outputs = {}
    for case in cases:
        layer = shaw.ShawRelativePositionSDPA(H * D, H, _bias(case), CLIP, use_rel_pos_values=True)
        layer.load_state_dict(reference["state_dict"])
        q, k, v = (reference["inputs"][letter] for letter in "qkv")
        outputs.update(_attend(layer, case, q, k, v))
    return described, outputs


def transformer_xl(name: str) -> Made:
    described = _inputs(S)
    described["parameters"] = {
        **{"u_bias": normal(H, D, std=0.5), "v_bias": normal(H, D, std=0.5)},
        "r_proj.weight": normal(H * D, H * D, std=0.3),
    }
    reference = instantiate(name, described)
    table = relative.RelativePositionalEncoding(H * D, 64)
    outputs = {"r_table": table(reference["inputs"]["k"].transpose(1, 2))}
    for case in ("full", "padded", "causal"):
        layer = relative.RelativePositionSDPA(H * D, H, table, _bias(case))
        layer.load_state_dict(reference["state_dict"])
        q, k, v = (reference["inputs"][letter] for letter in "qkv")
        outputs.update(_attend(layer, case, q, k, v))
    return described, outputs


MAKERS = {
    "shaw_values": partial(shaw_values, S, ("full", "padded", "causal", "causal_padded")),
    "shaw_cached_query": partial(shaw_values, 3, ("full", "causal")),
    "transformer_xl": transformer_xl,
}
