"""Settings that several families' architectures share: one dictionary a recipe."""

from typing import Any, Dict

ROTARY: Dict[str, Any] = {"position_encoding": "rotary"}
PERFORMER: Dict[str, Any] = {**ROTARY, "attention": "favor"}  # RoFormer section 4.4

#: RoFormerV2 (GAU section 4.1): RoFormer without biases and without parameters in its norms
ROFORMER_V2: Dict[str, Any] = {
    **ROTARY,
    "norm": "rms",
    "layer_norm_eps": 1e-12,
    "no_bias": True,
    "init_weights": "truncated_normal",
}
#: GAU section 4.1: gated units in place of RoFormerV2's layers
GAU: Dict[str, Any] = {**ROFORMER_V2, "layer": "gated"}
#: GAU of a width where the paper's key size, and its small initial weights, do not fit
GAU_TINY: Dict[str, Any] = {**GAU, "gau_key_size": 32}
